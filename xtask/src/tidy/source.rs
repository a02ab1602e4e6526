//! Just enough reading of Rust and Java to check rules: code without comments and literals, functions, doc
//! comments.
//!
//! It relies on `cargo fmt` having passed, and must never fail on a source that it does not understand.

/// Where a scan stands.
enum Mode {
    Code,
    Line,
    Block(usize),
    Text,
    Raw(usize),
}

/// The source with comments and the content of string and character literals blanked out; line breaks stay,
/// so that line numbers are right.
pub(crate) fn code_only(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut mode = Mode::Code;
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let rest = chars.get(at..).unwrap_or_default();
        let taken = match mode {
            Mode::Code => code(rest, chars.get(..at).unwrap_or_default(), &mut mode, &mut out),
            Mode::Line => {
                if c == '\n' {
                    mode = Mode::Code;
                }
                blank(&mut out, rest, 1)
            }
            Mode::Block(depth) => block(rest, depth, &mut mode, &mut out),
            Mode::Text => {
                if c == '"' {
                    mode = Mode::Code;
                }
                blank(&mut out, rest, if c == '\\' { 2 } else { 1 })
            }
            Mode::Raw(hashes) => {
                let ends = c == '"' && rest.iter().skip(1).take_while(|c| **c == '#').count() >= hashes;
                if ends {
                    mode = Mode::Code;
                }
                blank(&mut out, rest, if ends { 1 + hashes } else { 1 })
            }
        };
        at += taken.max(1);
    }
    out
}

fn code(rest: &[char], before: &[char], mode: &mut Mode, out: &mut String) -> usize {
    match rest {
        ['/', '/', ..] => *mode = Mode::Line,
        ['/', '*', ..] => *mode = Mode::Block(0),
        ['"', ..] => {
            *mode = raw_hashes(before).map_or(Mode::Text, Mode::Raw);
            return blank(out, rest, 1);
        }
        // A character literal; a lifetime has no closing quote there.
        ['\'', '\\', _, ..] => {
            let length = rest.iter().skip(3).position(|c| *c == '\'').map_or(3, |found| found + 4);
            return blank(out, rest, length);
        }
        ['\'', _, '\'', ..] => return blank(out, rest, 3),
        [c, ..] => {
            out.push(*c);
            return 1;
        }
        [] => return 1,
    }
    blank_start(mode, rest, out)
}

/// Blanks the two characters that open a comment.
fn blank_start(mode: &mut Mode, rest: &[char], out: &mut String) -> usize {
    if let Mode::Block(depth) = mode {
        *depth = 1;
    }
    blank(out, rest, 2)
}

fn block(rest: &[char], depth: usize, mode: &mut Mode, out: &mut String) -> usize {
    let (taken, depth) = match rest {
        ['/', '*', ..] => (2, depth + 1),
        ['*', '/', ..] => (2, depth - 1),
        _ => (1, depth),
    };
    *mode = if depth == 0 { Mode::Code } else { Mode::Block(depth) };
    blank(out, rest, taken)
}

/// How many `#` stand between an `r` and the quote that comes now; `None` when it opens no raw string.
fn raw_hashes(before: &[char]) -> Option<usize> {
    let hashes = before.iter().rev().take_while(|c| **c == '#').count();
    let mut rest = before.iter().rev().skip(hashes);
    if rest.next() != Some(&'r') {
        return None;
    }
    let is_word = |c: &char| c.is_alphanumeric() || *c == '_';
    match rest.next() {
        Some('b' | 'c') => (!rest.next().is_some_and(is_word)).then_some(hashes),
        other => (!other.is_some_and(is_word)).then_some(hashes),
    }
}

fn blank(out: &mut String, rest: &[char], n: usize) -> usize {
    out.extend(rest.iter().take(n).map(|c| if *c == '\n' { '\n' } else { ' ' }));
    n
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Line of its `fn`, counted from 1.
    pub(crate) line: usize,
    pub(crate) n_lines: usize,
}

/// All functions with a body in the output of [`code_only`].
pub(crate) fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let (before, after) = (code.get(..at).unwrap_or_default(), code.get(at + 3..).unwrap_or_default());
        let name = identifier(after);
        if before.ends_with(|c: char| c.is_alphanumeric() || c == '_') || name.is_empty() {
            continue;
        }
        let Some(body) = body_of(after) else { continue };
        let line = before.matches('\n').count() + 1;
        found.push(Function { name: name.to_owned(), line, n_lines: body.matches('\n').count() + 1 });
    }
    found
}

/// The identifier at the start of a text.
pub(crate) fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// From the start of an item to the `}` that ends its body; `None` when a `;` comes first.
pub(crate) fn body_of(item: &str) -> Option<&str> {
    let mut round = 0_i32;
    for (at, c) in item.char_indices() {
        match c {
            '(' | '[' => round += 1,
            ')' | ']' => round -= 1,
            ';' if round == 0 => return None,
            '{' if round == 0 => {
                return Some(item.get(..at + balanced(item.get(at..)?)?).unwrap_or_default());
            }
            _ => {}
        }
    }
    None
}

/// Length of the balanced group that the text starts with, brackets included.
pub(crate) fn balanced(text: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + c.len_utf8());
        }
    }
    None
}

/// One run of `///` lines, with what they document.
#[derive(Clone, Debug)]
pub(crate) struct Doc<'a> {
    /// Line of the first `///`, counted from 1.
    pub(crate) line: usize,
    /// The lines without `///` and one space.
    pub(crate) lines: Vec<&'a str>,
    /// Attributes below.
    pub(crate) attributes: Vec<&'a str>,
    /// First line below that is neither blank nor an attribute.
    pub(crate) item: &'a str,
}

/// All outer doc comments of a Rust file.
pub(crate) fn docs(source: &str) -> Vec<Doc<'_>> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let mut docs = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let run: Vec<&str> = lines.iter().skip(at).map_while(|line| line.strip_prefix("///")).collect();
        let n = run.len();
        if n > 0 {
            let below = lines.iter().skip(at + n).copied().filter(|line| !line.is_empty());
            let attributes = below.clone().take_while(|line| line.starts_with('#')).collect();
            let item = below.clone().find(|line| !line.starts_with('#')).unwrap_or_default();
            let lines = run.iter().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
            docs.push(Doc { line: at + 1, lines, attributes, item });
        }
        at += n.max(1);
    }
    docs
}

/// Words with one space between them.
pub(crate) fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let source = "let a = \"x { // y\"; // z }\n/* b /* c */ d */ let e = 'f'; let g = r#\"h \" i\"#;\nfn j<'k>(l: &'k str) {}\n";
        let code = code_only(source);
        assert_eq!(code.lines().count(), 3);
        assert_eq!(normal(&code), "let a = ; let e = ; let g = r# ; fn j<'k>(l: &'k str) {}");
        assert_eq!(code.chars().count(), source.chars().count());
    }

    #[test]
    fn escaped_quotes_do_not_end_a_literal() {
        assert_eq!(normal(&code_only(r#"a("\" {", '\'', '\\', b'{', "\\"); b"#)), "a( , , , b , ); b");
        assert_eq!(normal(&code_only("'\\u{7b}' x")), "x");
        assert_eq!(normal(&code_only("for_r\"{\" y")), "for_r y");
        assert_eq!(normal(&code_only("br##\"{\"# \"## y")), "br## y");
    }

    #[test]
    fn broken_source_does_not_stop_the_scan() {
        for source in ["\"open", "/* open", "r#\"open", "'", "'\\", "fn", "fn x(", "}}}"] {
            assert_eq!(code_only(source).chars().count(), source.chars().count(), "{source}");
            assert!(functions(&code_only(source)).is_empty());
        }
    }

    #[test]
    fn functions_are_measured_from_fn_to_closing_brace() {
        let code = code_only(
            "trait T {\n    fn a(&self);\n    async fn b(\n        x: [u8; 2],\n    ) -> Y {\n        { \"}\" }\n    }\n}\npub fn c() {}\n",
        );
        let found = functions(&code);
        let shown: Vec<_> =
            found.iter().map(|found| (found.name.as_str(), found.line, found.n_lines)).collect();
        assert_eq!(shown, [("b", 3, 5), ("c", 9, 1)]);
    }

    #[test]
    fn docs_know_what_they_document() {
        let found =
            docs("/// One.\n///   Two.\n#[test]\nfn x() {}\n// no doc\n\n    /// Three.\n    struct Y;\n");
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].line, found[0].lines.clone(), found[0].item),
            (1, vec!["One.", "  Two."], "fn x() {}")
        );
        assert_eq!((found[1].line, found[1].item), (7, "struct Y;"));
    }
}
