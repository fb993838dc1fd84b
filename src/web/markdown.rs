//! Text from outside becomes harmless: Markdown as sanitised HTML, output as plain characters.

use std::collections::HashSet;
use std::sync::LazyLock;

use ammonia::Builder;
use anstyle_parse::{DefaultCharAccumulator, Params, Parser as EscapeParser, Perform};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd, html};

use crate::console::output::visible;

/// The elements that Markdown needs. No image (a request to elsewhere), no form, no style, no id, no class.
static SANITISER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let mut builder = Builder::empty();
    let tags: HashSet<&str> = [
        "a",
        "blockquote",
        "br",
        "code",
        "del",
        "em",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "li",
        "ol",
        "p",
        "pre",
        "strong",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "ul",
    ]
    .into();
    builder
        .tags(tags)
        .tag_attributes(
            [
                ("a", HashSet::from(["href"])),
                ("ol", HashSet::from(["start"])),
            ]
            .into(),
        )
        .url_schemes(HashSet::from(["http", "https", "mailto"]))
        .url_relative(ammonia::UrlRelative::Deny)
        .link_rel(Some("noopener noreferrer nofollow"))
        .clean_content_tags(HashSet::from(["script", "style"]));
    builder
});

/// Markdown of a model as HTML. Raw HTML in it is shown as the text it is; an image becomes its address.
pub fn to_html(markdown: &str) -> String {
    let markdown = visible(&markdown.replace("\r\n", "\n"));
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    let events = Parser::new_ext(&markdown, options).map(|event| match event {
        Event::Html(raw) | Event::InlineHtml(raw) => Event::Text(raw),
        Event::Start(Tag::Image { dest_url, .. }) => {
            Event::Text(format!("[image {dest_url}] ").into())
        }
        Event::End(TagEnd::Image) => Event::Text("".into()),
        // The page has its own first and second level.
        Event::Start(Tag::Heading { level, .. }) => Event::Start(Tag::Heading {
            level: lower(level),
            id: None,
            classes: Vec::new(),
            attrs: Vec::new(),
        }),
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(lower(level))),
        other => other,
    });
    let mut out = String::with_capacity(markdown.len() * 2);
    html::push_html(&mut out, events);
    SANITISER.clean(&out).to_string()
}

fn lower(level: pulldown_cmark::HeadingLevel) -> pulldown_cmark::HeadingLevel {
    use pulldown_cmark::HeadingLevel::*;
    match level {
        H1 => H3,
        H2 => H4,
        H3 => H5,
        _ => H6,
    }
}

/// Output of a program as the characters a person would read: escape sequences are gone, a carriage return starts its
/// line anew, what could turn the direction of text around is written out.
pub fn inert(output: &str) -> String {
    let mut screen = Screen::default();
    let mut parser = EscapeParser::<DefaultCharAccumulator>::new();
    for byte in output.bytes() {
        parser.advance(&mut screen, byte);
    }
    screen.lines.push_str(&screen.line);
    visible(&screen.lines)
}

#[derive(Default)]
struct Screen {
    lines: String,
    line: String,
    returned: bool,
}

impl Perform for Screen {
    fn print(&mut self, c: char) {
        if self.returned {
            self.line.clear();
            self.returned = false;
        }
        self.line.push(c);
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\n' => {
                self.lines.push_str(&self.line);
                self.lines.push('\n');
                self.line.clear();
                self.returned = false;
            }
            b'\r' => self.returned = true,
            b'\t' => self.print('\t'),
            0x08 => {
                self.line.pop();
            }
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, _: &Params, _: &[u8], _: bool, _: u8) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_markdown_is_text() {
        let html = to_html(
            "# Hi\n<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n\n[a](javascript:alert(1)) \
             ![p](https://evil.example/p.png) [ok](https://ok.example) <b style=color:red>b</b>",
        );
        for bad in ["<script", "<img", "javascript:", "style=\"", "<b "] {
            assert!(!html.contains(bad), "{bad}: {html}");
        }
        assert!(html.contains("<h3>Hi</h3>"), "{html}");
        assert!(html.contains("href=\"https://ok.example\""), "{html}");
        assert!(html.contains("&lt;script&gt;"), "{html}");
    }

    #[test]
    fn d99_escape_codes_and_overrides_leave_no_trace() {
        let output = "\u{1b}[31mred\u{1b}[0m \u{1b}]0;title\u{7}ok\n10%\r55%\r100%\n\u{1b}[2Jx\u{202e}y <b>\n\u{1b}]8;;http://e\u{1b}\\link\u{1b}]8;;\u{1b}\\\r\nend";
        assert_eq!(inert(output), "red ok\n100%\nx\\u{202e}y <b>\nlink\nend");
    }
}
