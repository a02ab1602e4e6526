//! Reads the query of a request of Hudi's client: form-encoded, in any order, with bare names for what is null. The
//! encoding is undone once.

use percent_encoding::percent_decode_str;

/// Most parameters that are read; the client sends 11 and a token.
const PARAMETERS_MAX: usize = 64;

/// The parameters of one request, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(String, Option<String>)>);

/// A parameter whose bytes are no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotText(pub String);

impl Parameters {
    /// Reads a query.
    ///
    /// # Errors
    /// The name of the first parameter whose bytes are not UTF-8.
    pub fn read(query: &str) -> Result<Self, NotText> {
        let mut found = Vec::new();
        for part in query.split('&').filter(|p| !p.is_empty()).take(PARAMETERS_MAX) {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (part, None),
            };
            let name = decoded(name).ok_or_else(|| NotText(String::new()))?;
            let value = value.map(|v| decoded(v).ok_or_else(|| NotText(name.clone()))).transpose()?;
            found.push((name, value));
        }
        Ok(Self(found))
    }

    /// Returns the first value of this name that is not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().filter(|(n, _)| n == name).find_map(|(_, v)| v.as_deref().filter(|v| !v.is_empty()))
    }
}

fn decoded(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(|t| t.into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bare_names_empty_values_and_blanks_are_read() {
        let read =
            Parameters::read("extra_params&db_name=&basepath=file%3A%2Fd%2Fa+b%2Bc&token=abc&instant=&x=1=2")
                .unwrap();
        assert_eq!(read.get("extra_params"), None);
        assert_eq!(read.get("db_name"), None);
        assert_eq!(read.get("basepath"), Some("file:/d/a b+c"));
        assert_eq!(read.get("token"), Some("abc"));
        assert_eq!(read.get("x"), Some("1=2"));
    }

    #[test]
    fn the_encoding_is_undone_once() {
        let read = Parameters::read("basepath=%2Fd%2Fod%252Fd").unwrap();
        assert_eq!(read.get("basepath"), Some("/d/od%2Fd"));
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_by_name() {
        assert_eq!(Parameters::read("a=1&basepath=%ff"), Err(NotText("basepath".to_owned())));
    }

    proptest! {
        #[test]
        fn encoded_values_come_back(value in "\\PC{1,40}") {
            let encoded = percent_encoding::utf8_percent_encode(&value, percent_encoding::NON_ALPHANUMERIC).to_string();
            let read = Parameters::read(&format!("a&v={encoded}")).unwrap();
            prop_assert_eq!(read.get("v"), Some(value.as_str()));
        }
    }
}
