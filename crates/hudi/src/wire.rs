//! Lenient serde pieces: one set of structs reads Avro (with the schema inside the file) and JSON alike,
//! takes fields by name, and tolerates missing and null ones.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{
    EnumAccessDeserializer, MapAccessDeserializer, SeqAccessDeserializer, StringDeserializer,
};
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

/// A value that may be null, missing, or wrapped in an Avro union of any shape.
///
/// Plain `Option` accepts only unions of exactly null and one more, and plain structs only records of
/// their own name; both differ between Hudi's releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Maybe<T>(pub(crate) Option<T>);

/// Makes a struct whose fields are taken by name from a record or JSON object; all others are skipped.
///
/// `derive(Deserialize)` cannot do it: its way of skipping fails on Avro enums in `apache-avro` 0.22.
macro_rules! wire_record {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($field:ident: $kind:ty = $key:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        $vis struct $name { $($field: $kind,)+ }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;
                impl<'de> serde::de::Visitor<'de> for Fields {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a record")
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        let mut found = $name::default();
                        while let Some(key) = map.next_key::<$crate::wire::Key>()? {
                            match key.0.as_str() {
                                $($key => found.$field = map.next_value()?,)+
                                _ => {
                                    map.next_value::<$crate::wire::Skip>()?;
                                }
                            }
                        }
                        Ok(found)
                    }
                }
                deserializer.deserialize_map(Fields)
            }
        }
    };
}
pub(crate) use wire_record;

impl<T> Default for Maybe<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Maybe<T> {
    pub(crate) fn as_ref(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<T> Maybe<Vec<Maybe<T>>> {
    /// The items that are there.
    pub(crate) fn items(self) -> impl Iterator<Item = T> {
        self.0.into_iter().flatten().filter_map(|item| item.0)
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

/// A list of values that may be null themselves.
pub(crate) type List<T> = Maybe<Vec<Maybe<T>>>;

/// A map to values that may be null themselves.
pub(crate) type Dict<T> = Maybe<BTreeMap<String, Maybe<T>>>;

impl<T> Maybe<BTreeMap<String, Maybe<T>>> {
    /// The pairs whose value is there.
    pub(crate) fn pairs(self) -> impl Iterator<Item = (String, T)> {
        self.0.into_iter().flatten().filter_map(|(key, value)| value.0.map(|value| (key, value)))
    }
}

struct MaybeVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for MaybeVisitor<T> {
    type Value = Maybe<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Maybe(None))
    }

    fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Maybe(None))
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
        Maybe::deserialize(value)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(|v| Maybe(Some(v)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(|v| Maybe(Some(v)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(|v| Maybe(Some(v)))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(|v| Maybe(Some(v)))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Self::Value, E> {
        T::deserialize(StringDeserializer::new(value)).map(|v| Maybe(Some(v)))
    }

    fn visit_byte_buf<E: de::Error>(self, value: Vec<u8>) -> Result<Self::Value, E> {
        T::deserialize(BytesDeserializer(value, PhantomData)).map(|v| Maybe(Some(v)))
    }

    fn visit_bytes<E: de::Error>(self, value: &[u8]) -> Result<Self::Value, E> {
        self.visit_byte_buf(value.to_vec())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        T::deserialize(SeqAccessDeserializer::new(seq)).map(|v| Maybe(Some(v)))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|v| Maybe(Some(v)))
    }

    fn visit_enum<A: de::EnumAccess<'de>>(self, data: A) -> Result<Self::Value, A::Error> {
        T::deserialize(EnumAccessDeserializer::new(data)).map(|v| Maybe(Some(v)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Maybe<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MaybeVisitor(PhantomData))
    }
}

/// An owned byte string as a deserializer; serde has none of its own.
struct BytesDeserializer<E>(Vec<u8>, PhantomData<E>);

impl<'de, E: de::Error> Deserializer<'de> for BytesDeserializer<E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_byte_buf(self.0)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Bytes of an Avro `bytes` value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blob(pub(crate) Vec<u8>);

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BlobVisitor;
        impl Visitor<'_> for BlobVisitor {
            type Value = Blob;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_byte_buf<E: de::Error>(self, value: Vec<u8>) -> Result<Blob, E> {
                Ok(Blob(value))
            }

            fn visit_bytes<E: de::Error>(self, value: &[u8]) -> Result<Blob, E> {
                Ok(Blob(value.to_vec()))
            }
        }
        deserializer.deserialize_byte_buf(BlobVisitor)
    }
}

/// A field's name or a map's key.
pub(crate) struct Key(pub(crate) String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Key, E> {
                Ok(Key(value.to_owned()))
            }
        }
        deserializer.deserialize_identifier(KeyVisitor)
    }
}

/// A value that nobody asked for, read past and dropped.
pub(crate) struct Skip;

impl<'de> Deserialize<'de> for Skip {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SkipVisitor)
    }
}

struct SkipVisitor;

impl<'de> Visitor<'de> for SkipVisitor {
    type Value = Skip;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Skip, E> {
        Ok(Skip)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Skip, E> {
        Ok(Skip)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Skip, E> {
        Ok(Skip)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Skip, E> {
        Ok(Skip)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Skip, E> {
        Ok(Skip)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Skip, E> {
        Ok(Skip)
    }

    fn visit_bytes<E: de::Error>(self, _: &[u8]) -> Result<Skip, E> {
        Ok(Skip)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Skip, A::Error> {
        while seq.next_element::<Skip>()?.is_some() {}
        Ok(Skip)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Skip, A::Error> {
        while map.next_key::<Key>()?.is_some() {
            map.next_value::<Skip>()?;
        }
        Ok(Skip)
    }

    fn visit_enum<A: de::EnumAccess<'de>>(self, data: A) -> Result<Skip, A::Error> {
        let (_, variant) = data.variant::<Key>()?;
        de::VariantAccess::unit_variant(variant)?;
        Ok(Skip)
    }
}
