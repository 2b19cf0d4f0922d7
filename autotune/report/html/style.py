"""Style of the page: light and dark, wide and narrow, and on paper. Colours are those of Okabe and Ito."""

STYLE = (
    """
:root{color-scheme:light dark;--text:#1c2024;--soft:#5c646c;--back:#fff;--card:#f6f7f8;--line:#d9dde1;
--s0:#0072b2;--s1:#d55e00;--s2:#009e73;--s3:#cc79a7;--s4:#b58900;--s5:#56b4e9;--s6:#8c5a2b;--s7:#6b6f76}
@media (prefers-color-scheme:dark){:root{--text:#e6e8ea;--soft:#9aa3ab;--back:#14171a;--card:#1c2024;--line:#343a40;
--s0:#4aa8e0;--s1:#ff8a3c;--s2:#2fc99b;--s3:#e59ac2;--s4:#e6c229;--s5:#8fd0f5;--s6:#c08a57;--s7:#a3a8ae}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:76rem;font:16px/1.5 system-ui,sans-serif;color:var(--text);
background:var(--back)}
h1{font-size:1.5rem;overflow-wrap:anywhere}h2{font-size:1.2rem;margin:2rem 0 .5rem}
h3{font-size:1rem;margin:1rem 0 .3rem;overflow-wrap:anywhere}
nav{display:flex;flex-wrap:wrap;gap:.3rem 1rem}a{color:var(--s0)}p{margin:.4rem 0;color:var(--soft)}
.note{color:var(--s1)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th,td{overflow-wrap:anywhere}
thead th{color:var(--soft);font-weight:600;overflow-wrap:normal}thead th[colspan]{text-align:center}
tbody th,tfoot th{font-weight:400;min-width:14rem;max-width:26rem}
tfoot th,tfoot td{font-weight:600;border-bottom:0}
.n{text-align:right}.n,.path{white-space:nowrap}thead .n{white-space:normal}
td{max-width:30rem}
.cards{display:grid;gap:1rem}
article{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.6rem .9rem;min-width:0}
article h3{margin:0}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:.5rem}
svg{width:100%;height:auto;display:block}svg text{font-size:12px;fill:var(--soft)}
.bar{height:1.25rem;border-radius:.25rem}
.grid{stroke:var(--line);stroke-width:1}
.line{fill:none;stroke-width:2.2;stroke-linejoin:round}.dots{fill:none;stroke-width:3.4;stroke-linecap:round;opacity:.45}
.key{display:inline-block;width:.8em;height:.8em;border-radius:.15em;margin-right:.4em;vertical-align:baseline}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem}
"""
    + "".join(
        f".line.s{n},.dots.s{n}{{stroke:var(--s{n})}}rect.s{n}{{fill:var(--s{n})}}.key.s{n}{{background:var(--s{n})}}\n"
        for n in range(8)
    )
    + """
.line.s1{stroke-dasharray:9 3}.line.s2{stroke-dasharray:4 3}.line.s3{stroke-dasharray:9 3 3 3}
.line.s4{stroke-dasharray:2 3}.line.s5{stroke-dasharray:14 4}.line.s6{stroke-dasharray:6 2 2 2 2 2}
@media (max-width:480px){body{padding:.6rem}svg text{font-size:17px}tbody th,tfoot th{min-width:9rem}}
details summary{cursor:pointer;color:var(--soft);margin:.5rem 0}
footer{margin-top:2rem;color:var(--soft);font-size:.875rem}
@media print{:root{color-scheme:light;--text:#000;--soft:#333;--back:#fff;--card:#fff;--line:#bbb;
--s0:#0072b2;--s1:#d55e00;--s2:#009e73;--s3:#cc79a7;--s4:#b58900;--s5:#56b4e9;--s6:#8c5a2b;--s7:#6b6f76}
body{max-width:none;padding:0;font-size:10pt}nav{display:none}.scroll{overflow:visible}table{font-size:8pt}
th,td{padding:.1rem .3rem}article,tr,svg{break-inside:avoid}
h2,h3{break-after:avoid}a{color:inherit;text-decoration:none}
.key,rect{print-color-adjust:exact;-webkit-print-color-adjust:exact}
details::details-content{content-visibility:visible;display:block;height:auto}}
"""
)
