//! A command line that a person can paste into a POSIX shell and get exactly the same words.

use std::fmt::Write as _;

/// Words joined into one line, each quoted where it needs to be.
pub fn command_line<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let quoted = words.into_iter().map(quote);
    quoted.collect::<Vec<_>>().join(" ")
}

/// One word as the shell must see it. Characters that could steer the terminal are written as escapes of `$'…'`, so
/// the line is safe to print and exact to run.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    if !word.is_empty() && word.chars().all(plain) && !word.starts_with('=') {
        return word.into();
    }
    let steers = |c: char| super::output::visible_line(c.encode_utf8(&mut [0; 4])) != c.to_string();
    if word.chars().any(steers) {
        return quote_with_escapes(word, steers);
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn quote_with_escapes(word: &str, steers: impl Fn(char) -> bool) -> String {
    let mut quoted = String::from("$'");
    for c in word.chars() {
        match c {
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            '\\' | '\'' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if steers(c) => {
                // Octal has a fixed width, so a digit that follows can not be swallowed.
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(quoted, "\\{byte:03o}");
                }
            }
            c => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_stay_as_they_are() {
        assert_eq!(
            command_line(["bazilion", "queue", "--file", "./a-b.txt"]),
            "bazilion queue --file ./a-b.txt"
        );
    }

    #[test]
    fn words_that_the_shell_would_change_are_quoted() {
        assert_eq!(quote(""), "''");
        assert_eq!(quote("fix it; rm -rf $HOME"), "'fix it; rm -rf $HOME'");
        assert_eq!(quote("don't"), r"'don'\''t'");
    }

    #[test]
    fn control_characters_are_escaped_and_exact() {
        assert_eq!(quote("a\nb\\'\u{1b}[1m"), r"$'a\nb\\\'\033[1m'");
    }

    #[test]
    fn the_shell_reads_back_the_same_words() {
        let words = [
            "",
            "plain",
            "it's",
            "two\nlines",
            "tab\there",
            "\u{1b}]0;x\u{7}",
            "\u{202e}1",
            "a\\n",
            "!~*?[x]{y}",
            "ä €",
        ];
        for word in words {
            let script = format!("printf %s {}", quote(word));
            let output = std::process::Command::new("bash")
                .args(["-c", &script])
                .output()
                .expect("bash runs");
            assert_eq!(String::from_utf8_lossy(&output.stdout), word, "{script}");
        }
    }
}
