use super::*;
use serde_json::json;

/// Every element that a page may have: nothing that runs, fetches or embeds.
const ALLOWED: [&str; 19] = [
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "svg", "text", "rect", "ul",
    "li", "div", "table", "tr", "th", "td",
];

fn samples() -> Vec<Value> {
    vec![
        json!({"bench": "erase", "overhead_ms": 0.37, "guest_not_measured": null, "rows": [
            {"method": "kernel", "chunk_groups": 1, "cmd38": 45056, "modelled_seconds": 1195.24,
             "where": "model"},
            {"method": "blockd", "chunk_groups": 45056, "cmd38": 1, "modelled_seconds": 1.423,
             "where": "model"},
            {"method": "mmc-utils", "chunk_groups": null, "wall_seconds": 2.5, "where": "guest"}]}),
        json!({"bench": "images", "missing": [{"where": "guest", "reason": "no <QEMU> & co"}],
            "rows": [{"where": "host", "backing": "ext4", "n": 40, "threads": 1, "over": null,
             "strategy": "floor", "median_ms": 3.25, "noisy": false}]}),
        json!({"bench": "fua", "within_5_percent": 9, "rows": [{"pattern": "rand-write",
            "path": "fua", "ours_mib_s": 123.45, "fio_mib_s": 122.01, "ratio": 1.012,
            "noisy": true, "ios": {"reads": 17, "writes": 4711, "flushes": 4712}}]}),
        json!({"cuts": 25, "verdict_right": 25, "outcomes": {"lost": 7, "torn": 6, "stale": 5,
            "nothing lost": 7}, "seed": 99}),
    ]
}

fn page_of(results: &[Value]) -> String {
    let results: Vec<_> = results
        .iter()
        .map(|value| (page::section(value).unwrap(), value.clone()))
        .collect();
    page::page(&results)
}

/// The words of a page, or what is wrong with it: every element is known, closed in order, and
/// nothing is fetched or run.
fn check(page: &str) -> Result<Vec<String>, String> {
    let page = page
        .strip_prefix("<!DOCTYPE html>\n")
        .ok_or("no document type")?;
    let mut open: Vec<&str> = Vec::new();
    let mut words = Vec::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once('<') {
        words.extend(text_of(before)?);
        let (tag, after) = after.split_once('>').ok_or("a tag without an end")?;
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            let last = open.pop();
            if last != Some(name) {
                return Err(format!("</{name}> ends {last:?}"));
            }
            continue;
        }
        let name = tag.split([' ', '/', '\n']).next().unwrap_or("");
        if !ALLOWED.contains(&name) {
            return Err(format!("<{name}> is not allowed"));
        }
        attributes(&tag[name.len()..])?;
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    match open.is_empty() && rest.trim().is_empty() {
        true => Ok(words),
        false => Err(format!("{open:?} stay open")),
    }
}

fn attributes(text: &str) -> Result<(), String> {
    let mut rest = text.trim().trim_end_matches('/').trim_end();
    while !rest.is_empty() {
        let (name, after) = rest
            .split_once("=\"")
            .ok_or(format!("attribute `{rest}`"))?;
        let (value, after) = after.split_once('"').ok_or(format!("no end of {name}"))?;
        if name.starts_with("on") || ["src", "href", "style"].contains(&name) {
            return Err(format!("attribute {name}"));
        }
        text_of(value)?;
        rest = after.trim_start();
    }
    Ok(())
}

fn text_of(text: &str) -> Result<Vec<String>, String> {
    let mut plain = text.to_owned();
    for (entity, c) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\"")] {
        plain = plain.replace(entity, c);
    }
    if plain.replace("&amp;", "").contains('&') || text.contains('>') {
        return Err(format!("`{text}` is not escaped"));
    }
    let words = plain.replace("&amp;", "&");
    Ok(words.split_whitespace().map(str::to_owned).collect())
}

fn all_numbers(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Number(number) => into.push(number.to_string()),
        Value::Array(values) => values.iter().for_each(|v| all_numbers(v, into)),
        Value::Object(fields) => fields.values().for_each(|v| all_numbers(v, into)),
        _ => {}
    }
}

#[test]
fn the_page_is_well_formed_and_has_every_number() {
    let samples = samples();
    let page = page_of(&samples);
    let words = check(&page).unwrap();
    let mut numbers = Vec::new();
    samples.iter().for_each(|v| all_numbers(v, &mut numbers));
    assert_eq!(numbers.len(), 25, "{numbers:?}");
    for number in numbers {
        assert!(words.contains(&number), "{number} is missing");
    }
    assert_eq!(page.matches("<svg").count(), samples.len());
    // Bars: three erases, one row of images, a pair, four outcomes.
    assert_eq!(page.matches("<rect").count(), 3 + 1 + 2 + 4);
}

#[test]
fn the_checker_finds_faults() {
    let page = page_of(&samples());
    assert!(check(&page).is_ok());
    for (old, new) in [
        ("<!DOCTYPE html>", ""),
        ("</table>", ""),
        ("</h2>", "</h1>"),
        ("&lt;QEMU&gt;", "<QEMU>"),
        ("&amp; co", "& co"),
        ("<ul>", "<script>"),
        ("<ul>", "<ul onclick=\"x\">"),
        ("</body></html>", "</body>"),
    ] {
        assert!(page.contains(old), "{old}");
        assert!(check(&page.replacen(old, new, 1)).is_err(), "{old} → {new}");
    }
}

#[test]
fn results_are_read_from_files() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path();
    assert!(run(out, &[]).is_err());
    for (n, value) in samples().iter().enumerate() {
        fs::write(out.join(format!("{n}.json")), format!("a table\n{value}\n")).unwrap();
    }
    run(out, &[]).unwrap();
    let page = fs::read_to_string(out.join(PAGE)).unwrap();
    assert_eq!(page, page_of(&samples()));
    fs::write(out.join("x.json"), "{\"bench\": \"nothing\"}").unwrap();
    assert!(run(out, &[]).is_err());
}
