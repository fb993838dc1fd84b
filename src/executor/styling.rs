//! Makes text that a program wrote harmless to show, and shows it.
//!
//! - Colour and simple styles stay, as `ESC [ … m` sequences that hold nothing but numbers we know. Every other control
//!   character becomes a visible one: no cursor moves, no titles, no links, no hidden text.
//! - Characters that turn the direction of writing, or that are not seen, are written out, so that text reads as it runs.
//! - The HTML has escaped text in `span`s with classes, and no other markup or attribute.

use std::fmt::Write as _;

/// Longest style sequence that is taken for one.
const STYLE_MAX: usize = 48;
/// Most numbers in one: written out in full they still fit.
const STYLE_NUMBERS: usize = 11;

/// Turns bytes into text with styles, across any chunk split.
#[derive(Debug, Default)]
pub struct Cleaner {
    held: Vec<u8>,
}

impl Cleaner {
    /// Takes bytes; appends the text that is certain to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.held.extend_from_slice(bytes);
        let keep = unfinished(&self.held);
        let ready = self.held.len() - keep;
        clean(&self.held[..ready], out);
        self.held.drain(..ready);
    }

    /// The stream ended: what was begun is shown as it is.
    pub fn finish(&mut self, out: &mut String) {
        clean(&self.held, out);
        self.held.clear();
    }
}

/// How many bytes at the end begin something that more bytes could complete: a character, or a style.
fn unfinished(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(STYLE_MAX);
    if let Some(at) = bytes[from..].iter().rposition(|&b| b == 0x1b) {
        let tail = &bytes[from + at..];
        let open = match tail {
            [_] => true,
            [_, b'[', rest @ ..] => rest.iter().all(|b| is_style_byte(*b)),
            _ => false,
        };
        if open && tail.len() < STYLE_MAX {
            return tail.len();
        }
    }
    let last = bytes.len().saturating_sub(3);
    for (back, byte) in bytes[last..].iter().rev().enumerate() {
        let needs = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if needs > back + 1 { back + 1 } else { 0 };
    }
    0
}

fn is_style_byte(byte: u8) -> bool {
    byte.is_ascii_digit() || byte == b';' || byte == b':'
}

fn clean(bytes: &[u8], out: &mut String) {
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(c) = rest.chars().next() {
            // Nearly all output is this, and a flood of it must not hold the command back.
            let harmless = rest
                .bytes()
                .take_while(|b| matches!(b, b' '..=b'~' | b'\n' | b'\t'))
                .count();
            if harmless > 0 {
                out.push_str(&rest[..harmless]);
                rest = &rest[harmless..];
                continue;
            }
            if let Some((style, length)) = style_at(rest) {
                style.write(out);
                rest = &rest[length..];
                continue;
            }
            show(c, out);
            rest = &rest[c.len_utf8()..];
        }
        if !chunk.invalid().is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// One character as it may be shown.
fn show(c: char, out: &mut String) {
    match c {
        '\n' | '\t' => out.push(c),
        '\0'..='\x1f' => {
            out.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER))
        }
        '\x7f' => out.push('\u{2421}'),
        c if is_unseen(c) => {
            let _ = write!(out, "<U+{:04X}>", u32::from(c));
        }
        c => out.push(c),
    }
}

/// C1 controls, direction marks and other format characters. The two joiners stay: scripts and emoji need them.
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

/// One change of style: only what shows text differently, never what hides it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Style {
    numbers: Vec<u8>,
}

impl Style {
    fn write(&self, out: &mut String) {
        out.push_str("\x1b[");
        for (index, number) in self.numbers.iter().enumerate() {
            let separator = if index == 0 { "" } else { ";" };
            let _ = write!(out, "{separator}{number}");
        }
        out.push('m');
    }
}

/// A style sequence at the start of the text, and its length.
fn style_at(text: &str) -> Option<(Style, usize)> {
    let body = text.strip_prefix("\x1b[")?;
    let length = body
        .bytes()
        .take(STYLE_MAX - 2)
        .position(|b| !is_style_byte(b))?;
    if body.as_bytes()[length] != b'm' {
        return None;
    }
    let mut numbers = Vec::new();
    for word in body[..length].split([';', ':']) {
        numbers.push(if word.is_empty() {
            0
        } else {
            word.parse::<u8>().ok()?
        });
    }
    (numbers.len() <= STYLE_NUMBERS && allowed(&numbers))
        .then(|| (Style { numbers }, 2 + length + 1))
}

fn allowed(numbers: &[u8]) -> bool {
    let mut rest = numbers;
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (38 | 48, [5, _, more @ ..] | [2, _, _, _, more @ ..]) => more,
            (0..=4 | 7 | 9 | 21..=24 | 27 | 29..=37 | 39..=47 | 49 | 90..=97 | 100..=107, more) => {
                more
            }
            _ => return false,
        };
    }
    true
}

/// Text with styles as plain text: for the model, for messages, for narrow terminals.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    pieces(text, |piece| match piece {
        Piece::Text(c) => show(c, &mut out),
        Piece::Style(_) => {}
    });
    out
}

/// Text with styles as HTML: escaped, in `span`s whose classes begin with `a-`.
pub fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let mut look = Look::default();
    let mut open = false;
    let mut shown = String::new();
    pieces(text, |piece| match piece {
        Piece::Style(style) => {
            let before = look.clone();
            look.apply(&style.numbers);
            if look != before && open {
                out.push_str("</span>");
                open = false;
            }
        }
        Piece::Text(c) => {
            if !open && look != Look::default() {
                let _ = write!(out, "<span class=\"{}\">", look.classes());
                open = true;
            }
            shown.clear();
            show(c, &mut shown);
            shown.chars().for_each(|c| escape(c, &mut out));
        }
    });
    if open {
        out.push_str("</span>");
    }
    out
}

enum Piece {
    Text(char),
    Style(Style),
}

fn pieces(text: &str, mut each: impl FnMut(Piece)) {
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some((style, length)) = style_at(rest) {
            each(Piece::Style(style));
            rest = &rest[length..];
        } else {
            each(Piece::Text(c));
            rest = &rest[c.len_utf8()..];
        }
    }
}

fn escape(c: char, out: &mut String) {
    match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&quot;"),
        '\'' => out.push_str("&#39;"),
        c => out.push(c),
    }
}

/// How text looks now. The sixteen named colours only; others come as the nearest of them, so that a page needs no
/// inline style.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Look {
    foreground: Option<u8>,
    background: Option<u8>,
    bold: bool,
    dim: bool,
    italic: bool,
    underline: bool,
    reverse: bool,
    strike: bool,
}

impl Look {
    fn apply(&mut self, numbers: &[u8]) {
        let mut rest = numbers;
        while let [first, tail @ ..] = rest {
            rest = tail;
            match (*first, tail) {
                (38, [5, n, more @ ..]) => (self.foreground, rest) = (Some(indexed(*n)), more),
                (48, [5, n, more @ ..]) => (self.background, rest) = (Some(indexed(*n)), more),
                (38, [2, r, g, b, more @ ..]) => {
                    (self.foreground, rest) = (Some(nearest(*r, *g, *b)), more)
                }
                (48, [2, r, g, b, more @ ..]) => {
                    (self.background, rest) = (Some(nearest(*r, *g, *b)), more)
                }
                (number, _) => self.set(number),
            }
        }
    }

    fn set(&mut self, number: u8) {
        match number {
            0 => *self = Self::default(),
            1 => self.bold = true,
            2 => self.dim = true,
            3 => self.italic = true,
            4 | 21 => self.underline = true,
            7 => self.reverse = true,
            9 => self.strike = true,
            22 => (self.bold, self.dim) = (false, false),
            23 => self.italic = false,
            24 => self.underline = false,
            27 => self.reverse = false,
            29 => self.strike = false,
            30..=37 => self.foreground = Some(number - 30),
            39 => self.foreground = None,
            40..=47 => self.background = Some(number - 40),
            49 => self.background = None,
            90..=97 => self.foreground = Some(number - 90 + 8),
            100..=107 => self.background = Some(number - 100 + 8),
            _ => {}
        }
    }

    fn classes(&self) -> String {
        let mut names: Vec<String> = Vec::new();
        names.extend(self.foreground.map(|n| format!("a-f{n}")));
        names.extend(self.background.map(|n| format!("a-b{n}")));
        let flags = [
            (self.bold, "a-bold"),
            (self.dim, "a-dim"),
            (self.italic, "a-italic"),
            (self.underline, "a-underline"),
            (self.reverse, "a-reverse"),
            (self.strike, "a-strike"),
        ];
        names.extend(
            flags
                .into_iter()
                .filter(|(on, _)| *on)
                .map(|(_, name)| name.to_owned()),
        );
        names.join(" ")
    }
}

/// One of the 256 colours as one of sixteen.
fn indexed(number: u8) -> u8 {
    match number {
        0..=15 => number,
        16..=231 => {
            let n = number - 16;
            nearest(n / 36 * 51, n / 6 % 6 * 51, n % 6 * 51)
        }
        232..=255 => {
            let grey = (number - 232) * 10 + 8;
            nearest(grey, grey, grey)
        }
    }
}

fn nearest(red: u8, green: u8, blue: u8) -> u8 {
    let most = red.max(green).max(blue);
    if most < 48 {
        return 0;
    }
    let part = |value: u8, bit: u8| {
        if u16::from(value) * 2 > u16::from(most) {
            bit
        } else {
            0
        }
    };
    let hue = part(red, 1) | part(green, 2) | part(blue, 4);
    if most > 170 { hue + 8 } else { hue }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cleaned(bytes: &[u8]) -> String {
        let mut cleaner = Cleaner::default();
        let mut out = String::new();
        cleaner.push(bytes, &mut out);
        cleaner.finish(&mut out);
        out
    }

    #[test]
    fn d099_colour_stays_and_everything_else_is_seen() {
        assert_eq!(cleaned(b"\x1b[1;31mred\x1b[0m"), "\x1b[1;31mred\x1b[0m");
        assert_eq!(cleaned(b"\x1b[2J\x1b[10;10H"), "\u{241b}[2J\u{241b}[10;10H");
        assert_eq!(cleaned(b"\x1b]0;title\x07"), "\u{241b}]0;title\u{2407}");
        assert_eq!(
            cleaned(b"\x1b]8;;http://x\x1b\\link"),
            "\u{241b}]8;;http://x\u{241b}\\link"
        );
        assert_eq!(cleaned(b"10%\r20%\r\n"), "10%\u{240d}20%\u{240d}\n");
        assert_eq!(
            cleaned("a\u{202e}b\u{9b}c".as_bytes()),
            "a<U+202E>b<U+009B>c"
        );
    }

    #[test]
    fn hidden_and_blinking_text_is_not_a_style() {
        assert_eq!(cleaned(b"\x1b[8mhidden"), "\u{241b}[8mhidden");
        assert_eq!(cleaned(b"\x1b[5mblink"), "\u{241b}[5mblink");
        assert_eq!(cleaned(b"\x1b[999m"), "\u{241b}[999m");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(cleaned(b"a\xffb\xe2\x82"), "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn html_is_escaped_text_in_spans() {
        assert_eq!(
            html("<b onclick='x'>&\""),
            "&lt;b onclick=&#39;x&#39;&gt;&amp;&quot;"
        );
        assert_eq!(
            html("\x1b[31mred\x1b[0m plain"),
            "<span class=\"a-f1\">red</span> plain"
        );
        assert_eq!(
            html("\x1b[1m\x1b[92mok"),
            "<span class=\"a-f10 a-bold\">ok</span>"
        );
        assert_eq!(html("\x1b[38;5;196mx"), "<span class=\"a-f9\">x</span>");
        assert_eq!(html("a\x1b]0;t\x07"), "a\u{241b}]0;t\u{2407}");
    }

    #[test]
    fn plain_text_has_no_styles() {
        assert_eq!(plain("\x1b[31mred\x1b[0m\u{202e}"), "red<U+202E>");
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_text(
            bytes in prop::collection::vec(
                prop::sample::select(vec![0x1b_u8, b'[', b'3', b'1', b';', b'm', b'a', 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0xff, b'\r']), 0..80),
            size in 1_usize..9,
        ) {
            let mut cleaner = Cleaner::default();
            let mut out = String::new();
            for chunk in bytes.chunks(size) {
                cleaner.push(chunk, &mut out);
            }
            cleaner.finish(&mut out);
            prop_assert_eq!(&out, &cleaned(&bytes));
            prop_assert!(!plain(&out).chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
            prop_assert!(!html(&out).contains('\x1b'));
            // What is clean stays as it is.
            prop_assert_eq!(cleaned(out.as_bytes()), out);
        }
    }
}
