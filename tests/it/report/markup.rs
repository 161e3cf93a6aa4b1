//! Checks that a page is well formed and needs nothing besides itself.

use crate::case::Outcome;

/// Elements without an end.
const VOID: [&str; 1] = ["meta"];
/// Every element that a certificate may have: nothing that runs, fetches or embeds.
const ALLOWED: [&str; 23] = [
    "body", "div", "footer", "h1", "h2", "h3", "head", "header", "html", "li", "meta", "p",
    "section", "strong", "style", "table", "tbody", "td", "th", "thead", "title", "tr", "ul",
];
/// Words that fetch something, in a style sheet.
const FETCHES: [&str; 3] = ["url(", "@import", "src:"];

/// The text of a page, entities decoded, or what is wrong with it.
pub fn check(page: &str) -> Result<String, String> {
    let page = page
        .strip_prefix("<!DOCTYPE html>")
        .ok_or("no document type")?;
    if page.matches("</html>").count() != 1 || !page.trim_end().ends_with("</html>") {
        return Err("it does not end once".to_owned());
    }
    let mut open: Vec<&str> = Vec::new();
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once('<') {
        in_text(before, &open, &mut text)?;
        let (tag, after) = after.split_once('>').ok_or("a tag without an end")?;
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            match open.pop() {
                Some("strong") if name == "strong" => {}
                Some(last) if last == name => text.push(' '),
                last => return Err(format!("</{name}> ends {last:?}")),
            }
            continue;
        }
        let name = tag.split(' ').next().unwrap_or_default();
        if !ALLOWED.contains(&name) {
            return Err(format!("the element <{name}>"));
        }
        attributes(name, &tag[name.len()..])?;
        if !VOID.contains(&name) {
            open.push(name);
        }
    }
    in_text(rest, &open, &mut text)?;
    match open.last() {
        None => Ok(text.split_whitespace().collect::<Vec<_>>().join(" ")),
        Some(name) => Err(format!("<{name}> is not closed")),
    }
}

fn in_text(raw: &str, open: &[&str], text: &mut String) -> Result<(), String> {
    if raw.contains('>') {
        return Err(format!("a bare `>` in {raw:?}"));
    }
    match open.last() {
        Some(&"style") => match FETCHES.iter().find(|word| raw.contains(**word)) {
            Some(word) => Err(format!("the style sheet says {word}")),
            None => Ok(()),
        },
        None if !raw.trim().is_empty() => Err(format!("text outside of the page: {raw:?}")),
        _ => {
            text.push_str(&decoded(raw)?);
            Ok(())
        }
    }
}

/// `&lt;` → `<`.
fn decoded(raw: &str) -> Result<String, String> {
    const ENTITIES: [(&str, &str); 5] = [
        ("amp", "&"),
        ("lt", "<"),
        ("gt", ">"),
        ("quot", "\""),
        ("#39", "'"),
    ];
    let mut parts = raw.split('&');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part
            .split_once(';')
            .ok_or_else(|| format!("a bare & before {part:?}"))?;
        let known = ENTITIES.iter().find(|(entity, _)| *entity == name);
        text.push_str(known.ok_or_else(|| format!("&{name};"))?.1);
        text.push_str(rest);
    }
    match text
        .chars()
        .find(|c| c.is_control() && !matches!(c, '\n' | '\t'))
    {
        Some(c) => Err(format!("the control character {c:?}")),
        None => Ok(text),
    }
}

/// `class="…"` everywhere; what the head needs on `html` and `meta`.
fn attributes(element: &str, mut text: &str) -> Result<(), String> {
    while !text.is_empty() {
        let malformed = || format!("<{element}{text}>");
        let rest = text.strip_prefix(' ').ok_or_else(malformed)?;
        let (name, rest) = rest.split_once("=\"").ok_or_else(malformed)?;
        let (value, rest) = rest.split_once('"').ok_or_else(malformed)?;
        let allowed = match element {
            "html" => ["lang"].contains(&name),
            "meta" => ["charset", "content", "http-equiv", "name"].contains(&name),
            _ => name == "class",
        };
        if !allowed || value.contains("://") {
            return Err(format!("<{element} {name}=\"{value}\">"));
        }
        text = rest;
    }
    Ok(())
}

/// The checker finds what it is for.
pub fn finds_faults() -> Outcome {
    let page = |body: &str| format!("<!DOCTYPE html><html lang=\"en\"><body>{body}</body></html>");
    assert_eq!(
        check(&page("<p class=\"x\">a &lt;b&gt;</p>c")),
        Ok("a <b> c".to_owned())
    );
    for body in [
        "<p>",
        "</p>",
        "<p><td></p></td>",
        "<script>x</script>",
        "<img class=\"x\">",
        "<p onclick=\"x\">y</p>",
        "<p class=x>y</p>",
        "a > b",
        "a & b",
        "&nbsp;",
        "\u{7}",
        "<style>p { background: url(x) }</style>",
        "<p",
        "</html>",
    ] {
        if let Ok(text) = check(&page(body)) {
            return Err(format!("{body} passes as `{text}`"));
        }
    }
    assert!(check("<html></html>").is_err(), "no document type");
    Ok(())
}
