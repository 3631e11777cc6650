//! The style sheet of the page. Charts have the colours of a light page as attributes; rules for
//! these attributes make them follow the page.

use crate::view::chart::WIDTH;
use crate::view::chart::marks::colours;

const RULES: &str = "
*{box-sizing:border-box}
body{margin:0 auto;max-width:84rem;padding:0 1rem 3rem;background:var(--page);color:var(--ink);
font:1rem/1.5 system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:1.5rem 0 .5rem}
h2{font-size:1.2rem;margin:2rem 0 .25rem;border-top:1px solid var(--line);padding-top:1rem}
h3{font-size:1rem;margin:0}
p{margin:.25rem 0;max-width:48rem}
.dim,figcaption p,footer{color:var(--dim);font-size:.875rem}
.notice{border:2px solid var(--ink);padding:.5rem .75rem;margin:.75rem 0;max-width:48rem}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,23rem),1fr));gap:1.5rem 2rem;
margin:1rem 0;align-items:start}
figure{margin:0;min-width:0}
.rows{columns:23rem;column-gap:2rem;margin:1rem 0}
.rows figure{break-inside:avoid;margin-bottom:1.5rem}
details details{margin-left:1rem}
.chart{display:block;width:100%;height:auto}
.chart text{font-family:inherit}
.chart.sample{width:2.25rem;flex:none}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1rem;margin:.25rem 0;padding:0;font-size:.875rem}
.legend li{display:flex;align-items:center;gap:.4rem;overflow-wrap:normal}
details{margin:.5rem 0}
summary{cursor:pointer;font-size:.875rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.8125rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.15rem .75rem .15rem 0;border-bottom:1px solid var(--line);
overflow-wrap:normal}
th{font-weight:600}
td.number,th.number{text-align:right;white-space:nowrap}
section+main,main+main{border-top:3px solid var(--ink);margin-top:3rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;font-size:.875rem;margin:.5rem 0}
dt{color:var(--dim)}
dd{margin:0;min-width:0}
code{font:.8125rem ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}
@media print{
body{max-width:none;padding:0;font-size:.75rem}
.cards{grid-template-columns:1fr 1fr}
.rows{columns:2}
figure,tr,.notice{break-inside:avoid}
h2,h3{break-after:avoid}
.wide{overflow:visible}
details::details-content{content-visibility:visible;display:block;height:auto}
table{font-size:.5rem}
th,td{padding-right:.4rem}
}
";

/// The whole style sheet. Print is light.
pub fn sheet() -> String {
    let colours = colours("screen and (prefers-color-scheme:dark)");
    format!("{colours}.chart{{max-width:{}px}}{RULES}", WIDTH * 3 / 2)
}
