//! HTML in which every text is escaped and every tag is closed, by construction: tags and classes are
//! constants of this program, everything else passes [`Html::text`].

/// A page, or a part of one.
#[derive(Default)]
pub struct Html(String);

/// A column: its head and the class of its cells.
pub type Column = (&'static str, &'static str);

impl Html {
    /// A whole page. The policy in its head forbids it to fetch or run anything, should a text ever
    /// get past the escaping.
    pub fn page(title: &str, style: &'static str, body: impl FnOnce(&mut Html)) -> String {
        let mut html = Html(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                .to_owned(),
        );
        html.element("title", "", title);
        html.0.push_str("<style>\n");
        html.0.push_str(style);
        html.0.push_str("</style>\n</head>\n");
        html.within("body", "", body);
        html.0.push_str("</html>\n");
        html.0
    }

    /// An element with what `inside` puts there; no class where `class` is empty.
    pub fn within(
        &mut self,
        tag: &'static str,
        class: &'static str,
        inside: impl FnOnce(&mut Html),
    ) {
        self.open(tag, class);
        inside(self);
        self.close(tag);
    }

    /// An element with a text.
    pub fn element(&mut self, tag: &'static str, class: &'static str, text: &str) {
        self.within(tag, class, |html| html.text(text));
    }

    fn open(&mut self, tag: &str, class: &str) {
        self.0.push('<');
        self.0.push_str(tag);
        if !class.is_empty() {
            self.0.push_str(" class=\"");
            self.0.push_str(class);
            self.0.push('"');
        }
        self.0.push('>');
    }

    fn close(&mut self, tag: &str) {
        self.0.push_str("</");
        self.0.push_str(tag);
        self.0.push('>');
        // Inside a line a line's end would be a blank.
        if tag != "strong" {
            self.0.push('\n');
        }
    }

    /// A text. Control characters, and those that turn the direction of writing around so that a
    /// name can pose as another, are replaced.
    pub fn text(&mut self, text: &str) {
        for letter in text.chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' => self.0.push(' '),
                '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    self.0.push('\u{fffd}');
                }
                letter if letter.is_control() => self.0.push('\u{fffd}'),
                letter => self.0.push(letter),
            }
        }
    }

    /// A table with a head.
    pub fn table(
        &mut self,
        columns: &[Column],
        rows: impl IntoIterator<Item = impl IntoIterator<Item = String>>,
    ) {
        self.within("table", "", |html| {
            html.within("thead", "", |html| {
                html.within("tr", "", |html| {
                    for (head, class) in columns {
                        html.element("th", class, head);
                    }
                });
            });
            html.within("tbody", "", |html| {
                for row in rows {
                    html.within("tr", "", |html| {
                        for ((_, class), cell) in columns.iter().zip(row) {
                            html.element("td", class, &cell);
                        }
                    });
                }
            });
        });
    }

    /// A table of names and values; `class` is that of the values.
    pub fn facts<'a>(
        &mut self,
        class: &'static str,
        facts: impl IntoIterator<Item = (&'a str, String)>,
    ) {
        self.within("table", "facts", |html| {
            html.within("tbody", "", |html| {
                for (name, value) in facts {
                    html.within("tr", "", |html| {
                        html.element("th", "", name);
                        html.element("td", class, &value);
                    });
                }
            });
        });
    }

    /// A list.
    pub fn list<'a>(&mut self, items: impl IntoIterator<Item = &'a str>) {
        self.within("ul", "", |html| {
            for item in items {
                html.element("li", "", item);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let mut html = Html::default();
        html.element("td", "mono", "<b>\"A&B'\u{7}\u{202e}\n</b>");
        assert_eq!(
            html.0,
            "<td class=\"mono\">&lt;b&gt;&quot;A&amp;B&#39;\u{fffd}\u{fffd} &lt;/b&gt;</td>\n"
        );
    }
}
