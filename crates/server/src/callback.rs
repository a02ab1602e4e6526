//! Finds three fields in the body of a commit callback without keeping the rest: write statistics can be many MiB, in
//! any order with the fields. Memory does not grow with the body.
//!
//! It is lenient on purpose. What follows the three fields is skipped, not checked: the writer's commit is durable
//! already, and a table that is looked at for nothing costs one list call.

/// Longest key that can be one of the three, in bytes as it is written; escapes make it longer than its name.
const KEY_BYTES_MAX: usize = 128;
/// Longest value that is kept, in bytes as it is written. A base path has at most 4096 bytes, 6 each when escaped.
const VALUE_BYTES_MAX: usize = 32 * 1024;

/// What is kept of a callback.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallbackFields {
    /// Instant of the data commit; not a plan.
    pub commit_time: Option<String>,
    /// Label of the table.
    pub table_name: Option<String>,
    /// Base path of the table as the writer spells it.
    pub base_path: Option<String>,
}

impl CallbackFields {
    fn slot(&mut self, key: &str) -> Option<&mut Option<String>> {
        match key {
            "commitTime" => Some(&mut self.commit_time),
            "tableName" => Some(&mut self.table_name),
            "basePath" => Some(&mut self.base_path),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the object.
    Start,
    /// Before a key, or at the end of the object.
    BeforeKey,
    Key,
    Colon,
    BeforeValue,
    Text,
    /// Inside an object or list, so many levels deep.
    Nested(u32),
    /// Inside a text inside an object or list.
    NestedText(u32),
    /// Number, boolean or null.
    Plain,
    AfterValue,
    End,
    Bad,
}

/// Reads the body piece by piece.
#[derive(Debug)]
pub struct CallbackScanner {
    state: State,
    is_escaped: bool,
    /// The key or value being read, quotes left out; cut when it is longer than it may be.
    held: Vec<u8>,
    is_too_long: bool,
    /// Name of the field whose value is next; empty when it is none of ours.
    key: String,
    fields: CallbackFields,
}

impl Default for CallbackScanner {
    fn default() -> Self {
        Self {
            state: State::Start,
            is_escaped: false,
            held: Vec::new(),
            is_too_long: false,
            key: String::new(),
            fields: CallbackFields::default(),
        }
    }
}

impl CallbackScanner {
    /// Reads the next piece.
    pub fn feed(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while !matches!(self.state, State::End | State::Bad) {
            rest = self.skip(rest);
            let Some((byte, after)) = rest.split_first() else { return };
            self.step(*byte);
            rest = after;
        }
    }

    /// Takes the bytes at once that change no state: most of a callback are write statistics.
    fn skip<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        let n_alike = match self.state {
            State::Text | State::Key | State::NestedText(_) if !self.is_escaped => {
                memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len())
            }
            State::Nested(_) => {
                let is_mark = |byte: &u8| matches!(byte, b'{' | b'}' | b'[' | b']' | b'"');
                return &rest[rest.iter().position(is_mark).unwrap_or(rest.len())..];
            }
            _ => 0,
        };
        let (alike, rest) = rest.split_at(n_alike);
        self.hold(alike);
        rest
    }

    /// Tells whether nothing more can be learned.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let found = &self.fields;
        let has_all = found.commit_time.is_some() && found.table_name.is_some() && found.base_path.is_some();
        has_all || matches!(self.state, State::End | State::Bad)
    }

    /// Returns what was found, or none when the body is no object.
    #[must_use]
    pub fn finish(self) -> Option<CallbackFields> {
        let is_broken = self.state == State::Bad && self.fields.base_path.is_none();
        let is_object = self.state != State::Start && !is_broken;
        is_object.then_some(self.fields)
    }

    fn step(&mut self, byte: u8) {
        let is_blank = byte.is_ascii_whitespace();
        self.state = match (self.state, byte) {
            (State::Text | State::Key | State::NestedText(_), _) => self.in_text(byte),
            (State::Nested(depth), _) => nested(depth, byte),
            (state, _) if is_blank && state != State::Plain => state,
            (State::Start, b'{') => State::BeforeKey,
            (State::BeforeKey, b',') => State::BeforeKey,
            (State::BeforeKey, b'"') => self.begin(State::Key),
            (State::BeforeKey | State::AfterValue | State::Plain, b'}') => State::End,
            (State::Colon, b':') => State::BeforeValue,
            (State::BeforeValue, b'"') => self.begin(State::Text),
            (State::BeforeValue, b'{' | b'[') => State::Nested(1),
            (State::BeforeValue, b',' | b'}' | b']' | b':') => State::Bad,
            (State::BeforeValue, _) => State::Plain,
            (State::Plain | State::AfterValue, b',') => State::BeforeKey,
            (State::Plain, _) => State::Plain,
            _ => State::Bad,
        };
    }

    fn begin(&mut self, state: State) -> State {
        self.held.clear();
        self.is_too_long = false;
        self.is_escaped = false;
        state
    }

    fn in_text(&mut self, byte: u8) -> State {
        if self.is_escaped {
            self.is_escaped = false;
        } else if byte == b'\\' {
            self.is_escaped = true;
        } else if byte == b'"' {
            return self.end_of_text();
        }
        self.hold(&[byte]);
        self.state
    }

    fn hold(&mut self, bytes: &[u8]) {
        let most = match self.state {
            State::Key => KEY_BYTES_MAX,
            State::Text if !self.key.is_empty() => VALUE_BYTES_MAX,
            _ => 0,
        };
        let n_held = bytes.len().min(most.saturating_sub(self.held.len()));
        self.held.extend_from_slice(&bytes[..n_held]);
        self.is_too_long |= n_held < bytes.len();
    }

    fn end_of_text(&mut self) -> State {
        match self.state {
            State::Key => {
                let key = self.unquoted().filter(|key| self.fields.slot(key).is_some());
                self.key = key.unwrap_or_default();
                State::Colon
            }
            State::Text => {
                let value = self.unquoted();
                let key = std::mem::take(&mut self.key);
                if let Some(slot) = self.fields.slot(&key)
                    && slot.is_none()
                {
                    *slot = value;
                }
                State::AfterValue
            }
            State::NestedText(depth) => State::Nested(depth),
            other => other,
        }
    }

    /// Undoes JSON's escapes; none for what is too long or no text.
    fn unquoted(&self) -> Option<String> {
        if self.is_too_long {
            return None;
        }
        let is_plain = self.held.iter().all(|byte| *byte >= b' ' && *byte != b'\\');
        if is_plain {
            return std::str::from_utf8(&self.held).ok().map(str::to_owned);
        }
        let mut quoted = Vec::with_capacity(self.held.len() + 2);
        quoted.push(b'"');
        quoted.extend_from_slice(&self.held);
        quoted.push(b'"');
        serde_json::from_slice(&quoted).ok()
    }
}

fn nested(depth: u32, byte: u8) -> State {
    match byte {
        b'{' | b'[' => State::Nested(depth.saturating_add(1)),
        b'}' | b']' if depth == 1 => State::AfterValue,
        b'}' | b']' => State::Nested(depth - 1),
        b'"' => State::NestedText(depth),
        _ => State::Nested(depth),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(body: &[u8], piece: usize) -> Option<CallbackFields> {
        let mut scanner = CallbackScanner::default();
        body.chunks(piece.max(1)).for_each(|p| scanner.feed(p));
        scanner.finish()
    }

    fn base_path(body: &str) -> Option<String> {
        scan(body.as_bytes(), 7).and_then(|f| f.base_path)
    }

    #[test]
    fn fields_are_found_wherever_they_stand() {
        let stats = format!(r#"[{}]"#, vec![r#"{"path":"a\"}]","n":[1,{"basePath":"no"}]}"#; 50].join(","));
        let body = format!(
            r#" {{"hoodieWriteStat":{stats},"x":null,"commitTime":"1","n":-1.5e3 ,"tableName":"t","basePath":"file:///d/\u00e4"}} "#
        );
        let found = scan(body.as_bytes(), 3).unwrap();
        assert_eq!(found.base_path.as_deref(), Some("file:///d/ä"));
        assert_eq!(found.commit_time.as_deref(), Some("1"));
        assert_eq!(found.table_name.as_deref(), Some("t"));
    }

    #[test]
    fn odd_values_of_the_fields_are_left_out() {
        assert_eq!(base_path(r#"{"basePath":null,"tableName":5}"#), None);
        assert_eq!(base_path(r#"{"basePath":["/a"]}"#), None);
        assert_eq!(base_path(&format!(r#"{{"basePath":"{}"}}"#, "x".repeat(VALUE_BYTES_MAX + 1))), None);
        assert_eq!(base_path(r#"{"basePath":"/a","basePath":"/b"}"#).as_deref(), Some("/a"));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in ["", "   ", "[]", "null", "\"x\"", "basePath=/a"] {
            assert_eq!(scan(body.as_bytes(), 1), None, "{body}");
        }
    }

    #[test]
    fn a_body_that_is_cut_still_gives_what_came() {
        assert_eq!(base_path(r#"{"basePath":"/a","hoodieWriteStat":[{"#).as_deref(), Some("/a"));
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            r#"[a-z"\\/{}\[\],:é\n]{0,12}"#.prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                proptest::collection::btree_map("[a-z\"\\\\]{0,4}", inner, 0..4)
                    .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_scanner_finds_what_a_parser_finds(
            path in r#"[a-z"\\/{}é ]{1,20}"#,
            others in proptest::collection::vec(json(), 0..5),
            at in 0usize..6,
            piece in 1usize..9,
        ) {
            let mut entries: Vec<(String, serde_json::Value)> =
                others.into_iter().enumerate().map(|(i, v)| (format!("k\"{i}"), v)).collect();
            entries.insert(at.min(entries.len()), ("basePath".to_owned(), path.into()));
            let members: Vec<String> = entries
                .iter()
                .map(|(k, v)| format!("{}: {}", serde_json::to_string(k).unwrap(), v))
                .collect();
            let body = format!("{{{}}}", members.join(" ,\n"));
            let parsed: serde_json::Value = serde_json::from_str(&body).unwrap();
            let found = scan(body.as_bytes(), piece).unwrap();
            prop_assert_eq!(found.base_path.as_deref(), parsed["basePath"].as_str());
        }

        #[test]
        fn no_bytes_make_the_scanner_panic(body in proptest::collection::vec(any::<u8>(), 0..200), piece in 1usize..9) {
            let _found = scan(&body, piece);
        }
    }
}
