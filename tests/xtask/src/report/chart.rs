//! Bars as SVG: no script, nothing fetched.

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What was measured.
    pub label: String,
    /// Its length.
    pub value: f64,
    /// The value, for people.
    pub shown: String,
    /// 0 or 1: the colour.
    pub kind: usize,
}

/// Above this, largest to smallest, a linear axis would show one bar only.
const LOGARITHMIC: f64 = 50.0;
const ROW: usize = 20;
const LABELS: usize = 330;
const BARS: usize = 420;
const VALUES: usize = 130;
const COLOURS: [&str; 2] = ["#2b6cb0", "#c05621"];

/// Text for an element or an attribute.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The chart; `title` is read out where nobody sees it.
pub fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    let positive = || bars.iter().map(|bar| bar.value).filter(|v| *v > 0.0);
    let largest = positive().fold(0.0, f64::max);
    let smallest = positive().fold(largest, f64::min);
    let logarithmic = smallest > 0.0 && largest / smallest > LOGARITHMIC;
    let width = |value: f64| -> f64 {
        if value <= 0.0 || largest <= 0.0 {
            return 0.0;
        }
        let share = match logarithmic {
            // The smallest is a tenth of the way.
            true => 0.1 + 0.9 * (value / smallest).ln() / (largest / smallest).ln(),
            false => value / largest,
        };
        share * BARS as f64
    };
    let axis = match logarithmic {
        true => format!("{unit}, logarithmic"),
        false => unit.to_owned(),
    };
    let (all, height) = (LABELS + BARS + VALUES, (bars.len() + 1) * ROW + 8);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{}\" \
         viewBox=\"0 0 {all} {height}\">\n<text x=\"{LABELS}\" y=\"14\" class=\"axis\">{}</text>\n",
        escape(title),
        escape(&axis)
    );
    for (n, bar) in bars.iter().enumerate() {
        let y = (n + 1) * ROW;
        let wide = width(bar.value);
        svg += &format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LABELS}\" y=\"{}\" width=\"{wide:.1}\" height=\"{}\" fill=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}</text>\n",
            LABELS - 8,
            y + 14,
            escape(&bar.label),
            y + 3,
            ROW - 6,
            COLOURS[bar.kind % COLOURS.len()],
            LABELS as f64 + wide + 6.0,
            y + 14,
            escape(&bar.shown)
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widths(values: &[f64]) -> (Vec<f64>, String) {
        let all: Vec<Bar> = values
            .iter()
            .map(|value| Bar {
                label: "a<b".to_owned(),
                value: *value,
                shown: value.to_string(),
                kind: 0,
            })
            .collect();
        let svg = bars("t", "s", &all);
        let widths = svg.split("<rect").skip(1).map(|rest| {
            let rest = rest.split("width=\"").nth(1).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        });
        (widths.collect(), svg)
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let (linear, svg) = widths(&[10.0, 5.0, 0.0]);
        assert_eq!(linear, [420.0, 210.0, 0.0]);
        assert!(svg.contains("a&lt;b") && !svg.contains("logarithmic"));
        let (steps, svg) = widths(&[1.0, 10.0, 100.0]);
        assert!(svg.contains("s, logarithmic"));
        assert!((steps[1] - steps[0] - (steps[2] - steps[1])).abs() < 0.2);
        assert_eq!(widths(&[]).0.len(), 0);
    }
}
