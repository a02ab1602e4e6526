//! Strikes secrets out of what is logged or shown: by the name of a key, and by the look of a value.
//!
//! It is the last net. Nothing here makes it right to log a secret on purpose.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// What stands in the place of a secret.
pub const STRUCK: &str = "***";

/// Parts of a key's name, without its separators, that make its value a secret.
const SECRET_PARTS: [&str; 18] = [
    "secret",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "token",
    "credential",
    "accesskey",
    "apikey",
    "accountkey",
    "privatekey",
    "encryptionkey",
    "signingkey",
    "sharedkey",
    "authorization",
    "jaas",
    "signature",
    "sastok",
];

/// How an error of the domain goes on after "cannot …: ". Where the operation ends with a word such as token, that is
/// no secret.
const KINDS: [&str; 10] = [
    "not found",
    "exists already",
    "changed by somebody else",
    "this node does not lead",
    "the term is over",
    "not allowed",
    "invalid",
    "not supported",
    "not available now",
    "unexpected",
];

/// Tells whether what stands at `value` in `text` is the kind of an error whose operation ends at it: `cannot take the
/// token: not allowed`. Nothing but these words is let through, and only in such a sentence.
fn is_kind_of_error(text: &str, key: usize, value: usize) -> bool {
    let (before, between, rest) = (&text[..key], &text[key..value], &text[value..]);
    let operation = before.rsplit([':', '=', '"', '\n']).next().unwrap_or_default();
    let is_kind = |kind: &str| {
        let after = rest.strip_prefix(kind);
        after.is_some_and(|a| a.is_empty() || a.starts_with([',', ':', ';', ')', '"', '\n']))
    };
    operation.trim_start().starts_with("cannot ")
        && between.ends_with(": ")
        && KINDS.iter().any(|k| is_kind(k))
}

/// Tells whether the value under this key must not be shown, however the key is spelled.
#[must_use]
pub fn is_secret_key(key: &str) -> bool {
    let plain: String =
        key.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    // The names of files that hold secrets are none themselves.
    if plain.ends_with("file") {
        return false;
    }
    SECRET_PARTS.iter().any(|part| plain.contains(part))
}

/// Returns options with the values of secret keys struck, and with secrets struck inside the other values.
#[must_use]
pub fn options(options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let shown = |(key, value): (&String, &String)| {
        let value = if is_secret_key(key) { STRUCK.to_owned() } else { whole_value(value) };
        (key.clone(), value)
    };
    options.iter().map(shown).collect()
}

#[expect(clippy::unwrap_used, reason = "the patterns are constants, and a test uses each of them")]
static PATTERNS: LazyLock<[Regex; 6]> = LazyLock::new(|| {
    [
        // User and password of a URL; a user alone (`container@account`) is a place, no secret.
        r"(?P<keep>[A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#@\x22'<>:]*:[^\s/?#\x22'<>]*@",
        // The same without a scheme, such as Zookeeper's `user:password@host`, within a text.
        r"(?P<keep>^|[\s=,;\x22'(\[{])[A-Za-z0-9._+-]{1,64}:[^\s/\x22'<>,;]+@",
        // And as a whole value, where nothing else can stand before it.
        r"^(?P<keep>)[^\s/:@]+:[^\s/][^\s]*@",
        // `Bearer …` and `Basic …`.
        r"(?i)(?P<keep>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}",
        // Ids of cloud keys, and signed tokens.
        r"(?P<keep>)\b(?:(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{16}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*|gh[pousr]_[A-Za-z0-9]{20,})",
        // `key=value` and `"key":"value"`. Only keys that sound secret match, so that a harmless key cannot swallow a URL
        // with a secret in it.
        concat!(
            r"(?i)(?P<key>[a-z0-9_.%-]{0,128}",
            r"(?:secret|passw(?:or)?d|passphrase|pwd|token|credential|authorization|jaas|signature|sas[._-]?tok",
            r"|(?:access|api|account|private|encryption|signing|shared)[._-]?key)",
            r#"[a-z0-9_.%-]{0,128})(?P<between>\\?["']?\s*[=:]\s*)"#,
            r#"(?:\\?"(?P<quoted>[^"\\]*)\\?"|'(?P<single>[^']*)'|(?P<bare>[^\s"'&;,<>\\(){}\[\]]+))"#,
        ),
    ]
    .map(|pattern| Regex::new(pattern).unwrap())
});

fn whole_value(value: &str) -> String {
    let [_, _, login, ..] = &*PATTERNS;
    // The address of JDBC follows a second colon, and has a login of its own.
    if value.starts_with("jdbc:") {
        return text(value).into_owned();
    }
    text(&login.replace(value, STRUCK)).into_owned()
}

/// Returns a text with what looks like a secret struck.
#[must_use]
pub fn text(text: &str) -> Cow<'_, str> {
    let [url, login, _, bearer, ids, pairs] = &*PATTERNS;
    let mut shown = Cow::Borrowed(text);
    for pattern in [url, login, bearer, ids] {
        if let Cow::Owned(struck) =
            pattern.replace_all(&shown, |found: &Captures<'_>| format!("{}{STRUCK}", &found["keep"]))
        {
            shown = Cow::Owned(struck);
        }
    }
    let given: &str = &shown;
    let struck = pairs.replace_all(given, |found: &Captures<'_>| {
        let whole = &found[0];
        let value = ["quoted", "single", "bare"]
            .into_iter()
            .find_map(|name| found.name(name))
            .filter(|v| !v.is_empty());
        match (value, found.get(0)) {
            // Only the value goes, so that quotes stay in pairs.
            (Some(value), Some(all))
                if is_secret_key(&found["key"]) && !is_kind_of_error(given, all.start(), value.start()) =>
            {
                let (from, to) = (value.start() - all.start(), value.end() - all.start());
                format!("{}{STRUCK}{}", &whole[..from], &whole[to..])
            }
            _ => whole.to_owned(),
        }
    });
    match struck {
        Cow::Owned(struck) => Cow::Owned(struck),
        Cow::Borrowed(_) => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_keys_are_known_in_every_spelling() {
        for key in [
            "fs.s3a.secret.key",
            "fs.s3a.access.key",
            "AWS_SECRET_ACCESS_KEY",
            "aws-session-token",
            "javax.jdo.option.ConnectionPassword",
            "fs.azure.account.key.x.blob.core.windows.net",
            "hoodie.write.lock.dynamodb.secretKey",
            "apiKey",
            "db_passwd",
            "X-Amz-Signature",
        ] {
            assert!(is_secret_key(key), "{key}");
        }
        for key in [
            "hoodie.datasource.write.recordkey.field",
            "hoodie.table.version",
            "path",
            "server.token_file",
            "partition",
        ] {
            assert!(!is_secret_key(key), "{key}");
        }
    }

    #[test]
    fn secrets_inside_texts_are_struck() {
        let secret = "S3cr3tValue";
        for given in [
            format!("jdbc:mysql://root:{secret}@db/x"),
            format!("s3a://AKIA:{secret}@bucket/t"),
            format!("s3a://AKIA:p@{secret}@bucket/t"),
            format!("u:{secret}@zk1:2181"),
            format!("cannot reach u:p@{secret}@zk1:2181, asked u.v:{secret}@zk2"),
            format!("url=\"u:{secret}@zk\""),
            format!("Authorization: Bearer {secret}"),
            format!("GET /x?token={secret}&a=b"),
            format!("https://h/f?sig=1&X-Amz-Signature={secret}"),
            format!(r#"{{"password":"{secret}","a":1}}"#),
            format!(r#"{{\"password\": \"{secret}\"}}"#),
            format!("fs.s3a.secret.key={secret};x=y"),
            format!("password: '{secret}'"),
            format!("java.io.IOException: GET https://h/f?X-Amz-Security-Token={secret}&a=1 failed"),
            format!("--conf spark.hadoop.fs.s3a.access.key={secret}"),
            format!("cannot take the driver's token: {secret}"),
            format!("cannot take the driver's token: not {secret}").replace("not ", "not-"),
            format!("cannot take the driver's token: not allowed, token={secret}"),
            format!("cannot take the driver's token: invalid{secret}"),
        ] {
            let shown = text(&given);
            assert!(!shown.contains(secret), "{given} -> {shown}");
            assert!(shown.contains(STRUCK), "{given} -> {shown}");
        }
        assert!(!text("the id is AKIAABCDEFGHIJKLMNOP.").contains("AKIAABCDEFGHIJKLMNOP"));
    }

    #[test]
    fn a_login_without_a_scheme_is_struck_from_a_value() {
        let shown = |value: &str| {
            let given = BTreeMap::from([("hoodie.write.lock.zookeeper.url".to_owned(), value.to_owned())]);
            options(&given).remove("hoodie.write.lock.zookeeper.url").unwrap()
        };
        for value in
            ["u:SECRET@zk", "u:SECRET/x@zk:2181", "u:p@SECRET@zk:2181", "u:p/SECRET:x@zk1+u:SECRET@zk2"]
        {
            let shown = shown(value);
            assert!(!shown.contains("SECRET") && shown.contains("zk"), "{value} -> {shown}");
        }
        assert_eq!(shown("jdbc:mysql://u:SECRET@h/d"), "jdbc:mysql://***h/d");
        for value in ["jdbc:mysql://u@h/d", "zk1:2181", "file:/lake/u@x", "hdfs://ns1:8020/t@x", "4711@host"]
        {
            assert_eq!(shown(value), value);
        }
    }

    #[test]
    fn kinds_of_errors_are_no_secrets_and_hide_none() {
        use tms_core::{Error, ErrorKind};
        for kind in [
            ErrorKind::NotFound,
            ErrorKind::AlreadyExists,
            ErrorKind::Conflict,
            ErrorKind::NotLeader,
            ErrorKind::Fenced,
            ErrorKind::Denied,
            ErrorKind::Invalid,
            ErrorKind::Unsupported,
            ErrorKind::Unavailable,
            ErrorKind::Unexpected,
        ] {
            let error = Error::new(kind, "take the driver's token");
            let (alone, more) = (error.to_string(), error.with("tag", "x").caused_by("y").chain());
            for given in [alone.clone(), more, format!("error=\"{alone}\""), format!("WARN error={alone}")] {
                assert_eq!(text(&given), given);
            }
        }
        // The same words are struck where no error says them.
        for given in [
            "token: not allowed",
            "password: invalid",
            "cannot log in with password=invalid",
            "cannot log in, password: 'invalid'",
            "cannot x\npassword: unexpected",
        ] {
            assert!(text(given).contains(STRUCK), "{given} -> {}", text(given));
        }
    }

    #[test]
    fn harmless_texts_stay_as_they_are() {
        for given in [
            "cannot read a table: not found, table file:/lake/t",
            "abfss://container@account.dfs.core.windows.net/t",
            "file:/lake/a:b@c",
            "hdfs://ns1:8020/t@x",
            "a lock of 4711@host since 10:15:30",
            "instant=20261130093909077 action=compaction",
            "wait_token_count",
            "",
        ] {
            assert_eq!(text(given), given);
        }
    }
}
