//! Lines and words: quotes, escapes, continuation, comments (system/core/init/tokenizer.cpp).

/// One logical line that has at least one word.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// Number of the physical line on which it begins, from 1.
    pub number: usize,
    /// Its words, or why it cannot be split.
    pub words: Result<Vec<String>, String>,
}

/// Splits a text into its logical lines; empty lines and comments are left out.
pub fn lines(text: &str) -> Vec<Line> {
    let mut result = Vec::new();
    let mut physical = text.split('\n').enumerate();
    while let Some((index, first)) = physical.next() {
        let mut logical = first.strip_suffix('\r').unwrap_or(first).to_owned();
        // A backslash at the end of a line joins it with the next one, in comments too.
        while logical.ends_with('\\') && !logical.ends_with("\\\\") {
            logical.pop();
            match physical.next() {
                Some((_, next)) => logical.push_str(next.strip_suffix('\r').unwrap_or(next)),
                None => break,
            }
        }
        let words = words(&logical);
        if words.as_ref().is_ok_and(Vec::is_empty) {
            continue;
        }
        result.push(Line {
            number: index + 1,
            words,
        });
    }
    result
}

fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        match chars.peek() {
            // Only at the start of a word does # begin a comment.
            None | Some('#') => return Ok(words),
            Some(_) => {}
        }
        let mut word = String::new();
        let mut quoted = false;
        while let Some(c) = chars.next_if(|c| quoted || !c.is_ascii_whitespace()) {
            match c {
                '"' => quoted = !quoted,
                '\\' => match chars.next() {
                    Some('n') => word.push('\n'),
                    Some('r') => word.push('\r'),
                    Some('t') => word.push('\t'),
                    Some(other) => word.push(other),
                    None => return Err("backslash at the end of the file".to_owned()),
                },
                other => word.push(other),
            }
        }
        if quoted {
            return Err("quote is not closed".to_owned());
        }
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<Vec<String>> {
        lines(text).into_iter().map(|l| l.words.unwrap()).collect()
    }

    #[test]
    fn words_quotes_escapes_comments() {
        assert_eq!(
            split("a  \"b c\"\td\\ne # rest\n\n  # all\nx#y"),
            [vec!["a", "b c", "d\ne"], vec!["x#y"]]
        );
    }

    #[test]
    fn continued_lines_keep_the_first_number() {
        let got = lines("one \\\n two\nthree");
        assert_eq!(got[0].words, Ok(vec!["one".to_owned(), "two".to_owned()]));
        assert_eq!((got[0].number, got[1].number), (1, 3));
    }

    #[test]
    fn an_open_quote_is_refused() {
        assert!(lines("a \"b").remove(0).words.is_err());
    }
}
