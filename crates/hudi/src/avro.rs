//! Avro object containers and bare datums, decoded by `apache-avro` with the schema inside the file.
//!
//! The library trusts its input in places where a table must not be trusted: at the end of a cut datum its
//! value decoder answers nulls, it unpacks without a limit, and a recursive schema overflows the stack.
//! So the container's frame is read here, schemas are checked first, and datums are decoded through serde,
//! where a cut one is an error and fields nobody asked for are dropped at once.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::fault::Fault;
use crate::wire::{Blob, Maybe};

const MAGIC: &[u8; 4] = b"Obj\x01";
const SYNC_LENGTH: usize = 16;
/// Longest schema text; Hudi's longest has 17 KB (measured).
const SCHEMA_BYTES_MAX: usize = 1024 * 1024;
/// Deepest nesting and most nodes of a schema; Hudi's deepest has some 12 levels and 400 nodes.
const SCHEMA_DEPTH_MAX: usize = 64;
const SCHEMA_NODES_MAX: usize = 20_000;
/// Largest single value, and largest block after unpacking.
const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A schema that was checked and parsed.
#[derive(Debug)]
pub(crate) struct CheckedSchema(Schema);

impl CheckedSchema {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Fault> {
        if text.len() > SCHEMA_BYTES_MAX {
            return Err(Fault::too_large(format!("an Avro schema of {} bytes", text.len())));
        }
        let json: Json = serde_json::from_slice(text)
            .map_err(|e| Fault::corrupt(format!("the Avro schema is no JSON: {e}")))?;
        let mut check = SchemaCheck { open: BTreeSet::new(), n_nodes: 0 };
        check.visit(&json, "", 0, false)?;
        let schema = Schema::parse(&json)
            .map_err(|e| Fault::corrupt(format!("the Avro schema cannot be understood: {}", short(&e))))?;
        Ok(Self(schema))
    }

    /// Decodes one datum, which must take up all of `bytes`.
    pub(crate) fn decode<T: DeserializeOwned + Default>(&self, bytes: &[u8]) -> Result<T, Fault> {
        let mut rest = bytes;
        let value = self.decode_some(&mut rest)?;
        if rest.is_empty() {
            return Ok(value);
        }
        Err(Fault::corrupt(format!("{} bytes are left over behind the Avro record", rest.len())))
    }

    fn decode_some<T: DeserializeOwned + Default>(&self, rest: &mut &[u8]) -> Result<T, Fault> {
        // Process-wide, and only the first call counts; nothing else here uses the library.
        apache_avro::util::max_allocation_bytes(VALUE_BYTES_MAX);
        let fault = |e: &apache_avro::Error| {
            Fault::corrupt(format!("the Avro record is cut or damaged: {}", short(e)))
        };
        let reader = GenericDatumReader::builder(&self.0).build().map_err(|e| fault(&e))?;
        let value: Maybe<T> = reader.read_deser(rest).map_err(|e| fault(&e))?;
        Ok(value.0.unwrap_or_default())
    }
}

/// Texts of the library can hold whole schemas: keep the beginning.
fn short(error: &apache_avro::Error) -> String {
    const CHARS_MAX: usize = 200;
    let text = error.to_string();
    match text.char_indices().nth(CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// Refuses schemas that would let a small file cost endless work: recursion, and values of no length.
struct SchemaCheck {
    open: BTreeSet<String>,
    n_nodes: usize,
}

impl SchemaCheck {
    fn visit(&mut self, json: &Json, namespace: &str, depth: usize, is_branch: bool) -> Result<(), Fault> {
        self.n_nodes += 1;
        if depth > SCHEMA_DEPTH_MAX || self.n_nodes > SCHEMA_NODES_MAX {
            return Err(Fault::too_large("the Avro schema is nested too deep or too large"));
        }
        match json {
            Json::String(name) => self.visit_name(name, namespace, is_branch),
            Json::Array(branches) => {
                if branches.is_empty() {
                    return Err(Fault::corrupt("the Avro schema holds a union without branches"));
                }
                branches.iter().try_for_each(|branch| self.visit(branch, namespace, depth + 1, true))
            }
            Json::Object(object) => match object.get("type") {
                Some(Json::String(kind)) => match kind.as_str() {
                    "array" => self.visit_part(object.get("items"), namespace, depth),
                    "map" => self.visit_part(object.get("values"), namespace, depth),
                    "record" | "error" => self.visit_record(object, namespace, depth),
                    "fixed" => match object.get("size").and_then(Json::as_u64) {
                        Some(size) if size > 0 && size <= 1024 * 1024 => Ok(()),
                        _ => Err(Fault::unsupported("the Avro schema holds a fixed type of an odd size")),
                    },
                    "enum" => Ok(()),
                    name => self.visit_name(name, namespace, is_branch),
                },
                Some(inner) => self.visit(inner, namespace, depth + 1, is_branch),
                None => Err(Fault::corrupt("the Avro schema holds an object without a type")),
            },
            _ => Err(Fault::corrupt("the Avro schema holds neither name, list nor object")),
        }
    }

    fn visit_part(&mut self, part: Option<&Json>, namespace: &str, depth: usize) -> Result<(), Fault> {
        let part = part.ok_or_else(|| Fault::corrupt("the Avro schema holds an array or map of nothing"))?;
        self.visit(part, namespace, depth + 1, false)
    }

    fn visit_name(&self, name: &str, namespace: &str, is_branch: bool) -> Result<(), Fault> {
        if name == "null" && !is_branch {
            return Err(Fault::unsupported("the Avro schema holds a bare null"));
        }
        if self.open.contains(&full_name(name, namespace)) || self.open.contains(name) {
            return Err(Fault::unsupported(format!("the Avro schema is recursive in {name}")));
        }
        Ok(())
    }

    fn visit_record(
        &mut self,
        object: &serde_json::Map<String, Json>,
        namespace: &str,
        depth: usize,
    ) -> Result<(), Fault> {
        let name = object.get("name").and_then(Json::as_str).unwrap_or_default();
        let namespace = match (name.rsplit_once('.'), object.get("namespace").and_then(Json::as_str)) {
            (Some((inside, _)), _) => inside,
            (None, Some(own)) => own,
            (None, None) => namespace,
        };
        let name = full_name(name, namespace);
        let fields = object.get("fields").and_then(Json::as_array);
        let Some(fields) = fields.filter(|fields| !fields.is_empty()) else {
            return Err(Fault::unsupported(format!("the Avro schema holds a record without fields: {name}")));
        };
        let is_new = self.open.insert(name.clone());
        for field in fields {
            let kind = field.get("type");
            self.visit_part(kind, namespace, depth)?;
        }
        if is_new {
            self.open.remove(&name);
        }
        Ok(())
    }
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

/// True when the bytes begin like an Avro object container.
pub(crate) fn is_container(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Decodes the first record of an object container: every file of a timeline holds one.
pub(crate) fn decode_container<T: DeserializeOwned + Default>(bytes: &[u8]) -> Result<T, Fault> {
    if bytes.is_empty() {
        return Err(Fault::empty());
    }
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        return Err(Fault::corrupt("no Avro container: it does not begin with Obj 01"));
    };
    let header = Schema::map(Schema::Bytes).build();
    let header = CheckedSchema(header);
    let header: BTreeMap<String, Blob> = header.decode_some(&mut rest)?;
    let schema =
        header.get("avro.schema").ok_or_else(|| Fault::corrupt("the Avro container has no schema"))?;
    let schema = CheckedSchema::parse(&schema.0)?;
    let sync = take(&mut rest, SYNC_LENGTH)?;
    if rest.is_empty() {
        return Err(Fault::corrupt("the Avro container holds no record: cut behind its header"));
    }
    let n_records = long(&mut rest)?;
    let length = long(&mut rest)?;
    if n_records == 0 {
        return Err(Fault::corrupt("the Avro container holds no record"));
    }
    let block = take(&mut rest, length)?;
    if take(&mut rest, SYNC_LENGTH)? != sync {
        return Err(Fault::corrupt("the Avro container is damaged: its block has a wrong end mark"));
    }
    let codec = header.get("avro.codec").map(|blob| String::from_utf8_lossy(&blob.0).into_owned());
    let unpacked;
    let mut block = match codec.as_deref() {
        None | Some("null") => block,
        Some(codec) => {
            unpacked = unpack(codec, block)?;
            &unpacked
        }
    };
    if n_records == 1 { schema.decode(block) } else { schema.decode_some(&mut block) }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Fault> {
    let Some((taken, left)) = rest.split_at_checked(length) else {
        return Err(Fault::corrupt(format!(
            "the Avro container is cut: {length} bytes are due and {} are there",
            rest.len()
        )));
    };
    *rest = left;
    Ok(taken)
}

/// One number of the container's frame, which must not be negative.
fn long(rest: &mut &[u8]) -> Result<usize, Fault> {
    const BITS: u32 = 7;
    let mut value: u64 = 0;
    for at in 0..10 {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f).checked_shl(at * BITS).unwrap_or(0);
        if byte & 0x80 == 0 {
            let is_negative = value & 1 == 1;
            return match usize::try_from(value >> 1) {
                Ok(number) if !is_negative => Ok(number),
                _ => Err(Fault::corrupt("the Avro container is damaged: a negative length")),
            };
        }
    }
    Err(Fault::corrupt("the Avro container is damaged: an endless number"))
}

/// Unpacks a block. Hudi's own writers pack none, so this is for other writers, and bounded.
fn unpack(codec: &str, block: &[u8]) -> Result<Vec<u8>, Fault> {
    let damaged = || Fault::corrupt(format!("a block of the Avro container cannot be unpacked ({codec})"));
    match codec {
        "deflate" => {
            miniz_oxide::inflate::decompress_to_vec_with_limit(block, VALUE_BYTES_MAX).map_err(|e| {
                if e.status == miniz_oxide::inflate::TINFLStatus::HasMoreOutput {
                    Fault::too_large("a block of the Avro container is too large when unpacked")
                } else {
                    damaged()
                }
            })
        }
        "snappy" => {
            // Four bytes of checksum follow the packed data.
            let packed = block.len().checked_sub(4).and_then(|end| block.get(..end)).ok_or_else(damaged)?;
            if snap::raw::decompress_len(packed).map_err(|_| damaged())? > VALUE_BYTES_MAX {
                return Err(Fault::too_large("a block of the Avro container is too large when unpacked"));
            }
            snap::raw::Decoder::new().decompress_vec(packed).map_err(|_| damaged())
        }
        other => Err(Fault::unsupported(format!("the Avro container is packed with {other:?}"))),
    }
}
