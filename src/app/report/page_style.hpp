#pragma once
// How a report looks: on screens light and dark, on narrow ones, and on paper. Shades of the confusion matrix come with
// its cells, as --shade.

namespace tutti {

inline constexpr const char* kPageStyle = R"css(
:root{--paper:#fff;--ink:#1b1f24;--soft:#5b6570;--edge:#d9dee3;--card:#f6f8fa;--link:#0a5ea8;--right:21,101,192;
--wrong:214,84,20;--train:#1565c0;--test:#d65414;--rate:#6a3fb5;--speed:#2e7d32;--good:#1a7f37;--warn:#9a6700;
--bad:#c62828;--s0:#2e9e5b;--s1:#2f7ed8;--s2:#f0a30a;--s3:#d64545;--s4:#8e5bc7;--s5:#8c6d46;--s6:#9aa4ae}
@media (prefers-color-scheme:dark){:root{--paper:#12161b;--ink:#e4e8ec;--soft:#9aa5b1;--edge:#323b45;--card:#1a2027;
--link:#6cb6ff;--right:45,115,205;--wrong:215,95,45;--train:#5aa9ff;--test:#ff9a5c;--rate:#b794f6;--speed:#6fcf7c;
--good:#4cc364;--warn:#e0b040;--bad:#ff7b72;--s0:#4cc07c;--s1:#5a9ff0;--s2:#f5b94a;--s3:#f07070;--s4:#b58be8;
--s5:#b89468;--s6:#77828d}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif}
main{max-width:64rem;margin:0 auto;padding:1.5rem 1.25rem 3rem}
h1{font-size:1.7rem;line-height:1.25;margin:.1rem 0 .6rem;text-wrap:balance}
h2{font-size:1.2rem;margin:2.6rem 0 .8rem;padding-bottom:.3rem;border-bottom:1px solid var(--edge)}
h3{font-size:1rem;margin:1.6rem 0 .4rem}
p{margin:.4rem 0 .8rem;max-width:75ch}
a{color:var(--link)}
small{color:var(--soft);font-size:.85em}
.folder{color:var(--soft);font-size:.9rem;margin:0;overflow-wrap:anywhere}
.conditions{color:var(--soft);max-width:none}
.standing{display:inline-block;padding:.1rem .7rem;border-radius:1rem;border:1px solid;font-weight:600;font-size:.9rem;
overflow-wrap:anywhere}
.done{color:var(--good)}.going{color:var(--link)}.stopped{color:var(--warn)}.failed,.bad{color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.6rem,1fr));gap:.7rem;margin:1.2rem 0}
.tiles div{background:var(--card);border:1px solid var(--edge);border-radius:.5rem;padding:.5rem .75rem}
dt{color:var(--soft);font-size:.82rem}
dd{margin:0;display:flex;align-items:baseline;gap:.4rem;flex-wrap:wrap}
dd b{font-size:1.15rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
code{font-size:.85rem;overflow-wrap:anywhere}.tiles code{font-size:.72rem}
nav{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.92rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem}
figure{margin:0}
.charts figure{background:var(--card);border:1px solid var(--edge);border-radius:.5rem;padding:.7rem .8rem .5rem;
break-inside:avoid}
.legend{margin:.15rem 0 .2rem;display:flex;flex-wrap:wrap;gap:.1rem .9rem;font-size:.85rem;max-width:none}
.legend b{font-variant-numeric:tabular-nums}
.key{display:inline-block;width:.85em;height:.85em;border-radius:.2em;margin-right:.35em;vertical-align:-.08em;
background:currentColor}
svg{display:block;width:100%;max-width:40rem;height:auto;font-size:11px;font-family:inherit}
svg text{fill:var(--soft);font-variant-numeric:tabular-nums}
.end{text-anchor:end}.middle{text-anchor:middle}
.grid{stroke:var(--edge);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}
line.resumed{stroke:var(--soft);stroke-dasharray:2 3}i.resumed{color:var(--soft);width:0;border-left:2px dotted;
border-radius:0;background:none;margin:0 .5em}
.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
.line.thin{stroke-width:1;opacity:.55}i.thin{opacity:.55}
.mark{fill:currentColor}.unseen{opacity:0}.unseen:hover{opacity:1}
.train{color:var(--train)}.test{color:var(--test)}.rate{color:var(--rate)}.speed{color:var(--speed)}
.s0{color:var(--s0)}.s1{color:var(--s1)}.s2{color:var(--s2)}.s3{color:var(--s3)}.s4{color:var(--s4)}.s5{color:var(--s5)}
.s6{color:var(--s6)}
rect{fill:currentColor}rect:hover{opacity:.75}
.wide{overflow-x:auto;margin:.6rem 0}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:.22rem .65rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--edge)}
th{font-weight:600}thead th{color:var(--soft);vertical-align:bottom}
.figure{text-align:right;white-space:nowrap}
.facts td{overflow-wrap:anywhere;text-align:left;white-space:normal}
.facts td:first-child{color:var(--soft);white-space:nowrap}
.list td:first-child{text-align:right}.list td{overflow-wrap:anywhere}
.matrix th,.matrix td{border:0;padding:.25rem .4rem;text-align:right}
.matrix td{min-width:2.5rem;background:rgba(var(--hue),var(--shade));border:1px solid var(--paper)}
.matrix .right{--hue:var(--right)}.matrix .wrong{--hue:var(--wrong)}
.matrix .dark{color:#fff}.matrix .zero{background:none;color:var(--edge);text-align:center}
.matrix thead th{text-align:right;vertical-align:bottom;max-width:6rem;overflow-wrap:anywhere}
.matrix thead .corner{font-weight:400;font-size:.8rem;white-space:nowrap}
.matrix tbody th{white-space:nowrap;position:sticky;left:0;background:var(--paper)}
.classes td{white-space:nowrap}
.classes td:nth-child(2),.classes td:nth-child(3),.classes td:nth-child(5){text-align:right}
.bar{display:inline-block;width:9rem;height:.7rem;background:var(--edge);border-radius:.2rem;overflow:hidden}
.bar i{display:block;height:100%;background:var(--train)}
.gallery{display:grid;grid-template-columns:repeat(auto-fill,minmax(8.2rem,1fr));gap:.9rem}
.gallery figure{background:var(--card);border:1px solid var(--edge);border-radius:.5rem;padding:.6rem;
break-inside:avoid;font-size:.9rem}
.gallery img{display:block;width:100%;height:7rem;object-fit:contain;image-rendering:pixelated;margin-bottom:.4rem}
.gallery small{display:block;line-height:1.35;margin-top:.15rem}
.none{color:var(--soft);font-style:italic}
details{margin:.8rem 0}summary{cursor:pointer;color:var(--link)}
pre{background:var(--card);border:1px solid var(--edge);border-radius:.5rem;padding:.7rem .9rem;overflow-x:auto;
font-size:.85rem;margin:.4rem 0}
footer{margin-top:3rem;color:var(--soft);font-size:.85rem;overflow-wrap:anywhere}
@media (max-width:34rem){main{padding:1rem .8rem 2rem}h1{font-size:1.35rem}.bar{width:5rem}}
@media print{:root{--paper:#fff;--ink:#000;--soft:#444;--edge:#ccc;--card:#fff}nav{display:none}body{font-size:11px}
main{max-width:none;padding:0}*{-webkit-print-color-adjust:exact;print-color-adjust:exact}h2{break-after:avoid}
.charts{grid-template-columns:1fr 1fr}}
)css";

}  // namespace tutti
