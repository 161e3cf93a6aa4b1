//! How the page looks, on a screen and on A4.

/// The style sheet. It names no font file and no picture: the page is one file.
pub const STYLE: &str = "\
@page { size: A4; margin: 14mm 15mm;
  @bottom-right { content: counter(page) \" / \" counter(pages); font: 8pt Arial, sans-serif; } }
* { box-sizing: border-box; }
body { font: 9.5pt/1.35 \"Noto Sans\", \"DejaVu Sans\", Arial, sans-serif; color: #111; background: #fff;
  max-width: 190mm; margin: 0 auto; padding: 10mm 5mm; }
header { border-bottom: 2pt solid #111; padding-bottom: 3mm; }
h1 { font-size: 20pt; line-height: 1.2; margin: 0; }
h2 { font-size: 11.5pt; margin: 5mm 0 1mm; break-after: avoid; }
h3 { font-size: 9.5pt; margin: 3mm 0 1mm; break-after: avoid; }
p { margin: 1mm 0 1.5mm; }
ul { margin: 1mm 0; padding-left: 5mm; }
table { border-collapse: collapse; width: 100%; margin: 1mm 0 2mm; }
th, td { text-align: left; vertical-align: top; padding: 0.6mm 2mm 0.6mm 0;
  border-bottom: 0.4pt solid #bbb; }
thead { display: table-header-group; }
thead th { border-bottom: 0.8pt solid #111; font-size: 8.5pt; vertical-align: bottom;
  font-family: inherit; }
tr { break-inside: avoid; }
.facts th { width: 42mm; font-weight: normal; color: #444; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.mono { font-family: \"DejaVu Sans Mono\", \"Noto Sans Mono\", monospace; font-size: 8.5pt;
  overflow-wrap: anywhere; }
.small { font-size: 8.5pt; color: #444; }
.verdict { border: 1pt solid #111; padding: 3mm 4mm; margin: 4mm 0; font-size: 11pt;
  break-inside: avoid; }
.verdict p { margin: 0.5mm 0; }
.failed { border-width: 3pt; }
.narrow table { width: auto; min-width: 80mm; }
.sign { break-inside: avoid; }
.sign td { height: 11mm; border-bottom: 0.8pt solid #111; }
.sign th { height: 11mm; vertical-align: bottom; border-bottom: none; }
footer { margin-top: 6mm; border-top: 0.4pt solid #bbb; padding-top: 2mm; }
@media print { body { max-width: none; margin: 0; padding: 0; } }
";
