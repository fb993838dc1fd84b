//! Shell commands in the fenced blocks of a markdown file.
//!
//! - Fences are CommonMark's: backticks or tildes, indented, inside lists and quotes.
//! - Only blocks whose language is `sh`, `shell`, `bash` or `console`; only lines that begin, after an optional `$ `, with a
//!   known program.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

const LANGUAGES: [&str; 4] = ["sh", "shell", "bash", "console"];
const PROGRAMS: [&str; 11] = [
    "npm", "pnpm", "yarn", "node", "make", "cargo", "go", "bundle", "ruby", "python", "python3",
];

/// One command and the line of the file that it stands on, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    pub line: usize,
    pub command: String,
}

/// Finds the commands, in the file's order.
pub fn excerpts(text: &str) -> Vec<Excerpt> {
    let lines = LineIndex::new(text);
    let mut found = Vec::new();
    let mut block: Option<Block> = None;
    for (event, range) in Parser::new_ext(text, Options::empty()).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) if is_shell(&info) => {
                block = Some(Block::default());
            }
            Event::Text(part) => {
                if let Some(block) = &mut block {
                    block.push(&part, range.start, &lines, &mut found);
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                if let Some(block) = block.take() {
                    block.finish(&mut found);
                }
            }
            _ => {}
        }
    }
    found
}

/// A fenced block as its text arrives: in pieces that need not end with a line.
#[derive(Default)]
struct Block {
    line: String,
    number: usize,
}

impl Block {
    fn push(&mut self, part: &str, offset: usize, lines: &LineIndex, found: &mut Vec<Excerpt>) {
        for (index, piece) in part.split_inclusive('\n').enumerate() {
            if self.line.is_empty() {
                self.number = lines.number(offset) + index;
            }
            self.line.push_str(piece);
            if piece.ends_with('\n') {
                found.extend(command(&self.line, self.number));
                self.line.clear();
            }
        }
    }

    fn finish(self, found: &mut Vec<Excerpt>) {
        found.extend(command(&self.line, self.number));
    }
}

fn command(line: &str, number: usize) -> Option<Excerpt> {
    let line = line.trim_end();
    let command = line.strip_prefix("$ ").unwrap_or(line);
    let program = command.split_whitespace().next()?;
    let begins = command.starts_with(program) && PROGRAMS.contains(&program);
    begins.then(|| Excerpt {
        line: number,
        command: command.to_owned(),
    })
}

fn is_shell(info: &str) -> bool {
    let word = info
        .split(|c: char| !c.is_ascii_alphanumeric())
        .next()
        .unwrap_or_default();
    LANGUAGES
        .iter()
        .any(|language| word.eq_ignore_ascii_case(language))
}

/// Byte offset to line number.
struct LineIndex(Vec<usize>);

impl LineIndex {
    fn new(text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        LineIndex(ends.map(|(at, _)| at).collect())
    }

    fn number(&self, offset: usize) -> usize {
        self.0.partition_point(|end| *end < offset) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        excerpts(text)
            .into_iter()
            .map(|e| (e.line, e.command))
            .collect()
    }

    #[test]
    fn r037_only_known_programs_in_shell_fences_count() {
        let text = "npm install outside\n\n```console\n$ npm test\nnpm run build\noutput\n$  make\n```\n\n```toml\nnpm no\n```\n";
        assert_eq!(
            found(text),
            [(4, "npm test".into()), (5, "npm run build".into())]
        );
    }

    #[test]
    fn fences_may_be_tildes_indented_or_in_a_list() {
        let text = "~~~sh title=x\ncargo test\n~~~\n\n- step\n\n  ```bash\n  make all\n  ```\n\n> ```shell\n> go vet\n> ```\n\n   ```sh\n   node a.js\n   ```\n";
        assert_eq!(
            found(text),
            [
                (2, "cargo test".into()),
                (8, "make all".into()),
                (12, "go vet".into()),
                (16, "node a.js".into())
            ]
        );
    }

    #[test]
    fn crlf_and_an_unclosed_fence_are_read() {
        assert_eq!(
            found("a\r\n```sh\r\nmake one\r\nmake two"),
            [(3, "make one".into()), (4, "make two".into())]
        );
    }

    #[test]
    fn longer_words_are_other_words() {
        assert_eq!(
            found("```sh\nmakefile\nnpmx a\ngofmt\n```\n```shaders\nmake\n```"),
            []
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in "([`~]{3,4}(sh|bash| console)?|[ >\\-\t]{0,3}|\\$ |npm t|make|\r?\n|é|\u{0}){0,60}") {
            let lines = text.split('\n').count();
            for excerpt in excerpts(&text) {
                prop_assert!(excerpt.line >= 1 && excerpt.line <= lines);
                prop_assert!(!excerpt.command.contains('\n'));
            }
        }
    }
}
