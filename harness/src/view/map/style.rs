//! Colours of the picture, for light and dark pages. The backgrounds of cells have the same
//! luminance, so that the letters on them are equally readable: their contrast is at least 7:1 on
//! light pages and about 5:1 on dark ones.

/// Size classes beyond the last colour begin with the first again.
pub const COLOURS: usize = 9;

/// The style sheet. All selectors are below the class of the picture, which may be part of a page.
pub const STYLE: &str = "
.heap-map{background:#fff}
.heap-map text{font:11px system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1c1c1c}
.heap-map .title{font-size:15px;font-weight:600}
.heap-map .dim{fill:#595959}
.heap-map .offset{font-size:9px;fill:#595959}
.heap-map .glyph{font:9px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;text-anchor:middle}
.heap-map .page{fill:#fff}
.heap-map .line{stroke:#a8a8a8;stroke-width:1;fill:none}
.heap-map .c0{fill:#7cb4fc}.heap-map .c1{fill:#e5a059}.heap-map .c2{fill:#76c788}
.heap-map .c3{fill:#ef90ae}.heap-map .c4{fill:#bcb554}.heap-map .c5{fill:#bd9ff2}
.heap-map .c6{fill:#31c8c9}.heap-map .c7{fill:#f49383}.heap-map .c8{fill:#49c1ea}
.heap-map .l0{fill-opacity:.12}.heap-map .l1{fill-opacity:.3}.heap-map .l2{fill-opacity:.5}
.heap-map .l3{fill-opacity:.75}
.heap-map .large,.heap-map .s-live{fill:#a3a3a3}
.heap-map .free{fill:none;stroke:#8c8c8c;stroke-width:.6}
.heap-map .fresh{fill:#f1f1f1}
.heap-map .unmapped{fill:none}
.heap-map .unknown,.heap-map .s-unknown{fill:#ff9d8f}
.heap-map .held{fill:#1c1c1c}
.heap-map .s-quarantined{fill:#bd9ff2}
.heap-map .s-runs{fill:url(#heap-map-runs)}
.heap-map .s-free{fill:url(#heap-map-free)}
.heap-map .s-fresh{fill:#f1f1f1}
.heap-map .s-unmapped{fill:none}
.heap-map .bar{fill:none;stroke:#6b6b6b;stroke-width:.8}
.heap-map .ink{stroke:#4a4a4a;stroke-width:1.2;fill:none}
.heap-map .dots{fill:#4a4a4a}
.heap-map .mark{stroke:#b3261e;stroke-width:2;fill:none}
@media (prefers-color-scheme:dark){
.heap-map{background:#161616}
.heap-map text{fill:#f0f0f0}
.heap-map .dim,.heap-map .offset{fill:#b3b3b3}
.heap-map .page{fill:#161616}
.heap-map .line{stroke:#5c5c5c}
.heap-map .c0{fill:#3464a0}.heap-map .c1{fill:#8d5406}.heap-map .c2{fill:#2b7440}
.heap-map .c3{fill:#944561}.heap-map .c4{fill:#6d6600}.heap-map .c5{fill:#6d5398}
.heap-map .c6{fill:#007677}.heap-map .c7{fill:#98483c}.heap-map .c8{fill:#006f92}
.heap-map .l0{fill-opacity:.25}.heap-map .l1{fill-opacity:.4}.heap-map .l2{fill-opacity:.6}
.heap-map .l3{fill-opacity:.8}
.heap-map .large,.heap-map .s-live{fill:#666}
.heap-map .free{stroke:#7a7a7a}
.heap-map .fresh,.heap-map .s-fresh{fill:#242424}
.heap-map .unknown,.heap-map .s-unknown{fill:#a3261a}
.heap-map .held{fill:#f0f0f0}
.heap-map .s-quarantined{fill:#6d5398}
.heap-map .bar{stroke:#999}
.heap-map .ink{stroke:#b0b0b0}
.heap-map .dots{fill:#b0b0b0}
.heap-map .mark{stroke:#ff8a7a}
}
";

/// Patterns of the parts of a bar over time.
pub const PATTERNS: &str = r#"<defs>
<pattern id="heap-map-runs" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M-1 1L1 -1M0 6L6 0M5 7L7 5" class="ink"/></pattern>
<pattern id="heap-map-free" width="5" height="5" patternUnits="userSpaceOnUse"><circle cx="2.5" cy="2.5" r=".9" class="dots"/></pattern>
</defs>"#;
