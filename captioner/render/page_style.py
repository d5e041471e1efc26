"""The style sheets of the page of captions."""

from __future__ import annotations

VIEWER_STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --card: #f5f5f2; --ink: #181a1f; --pale: #5d626d; --line: #d9d9d4;
  --mark: #ffc857; --mark-ink: #181a1f; --focus: #1f5fd0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14161a; --card: #1d2026; --ink: #ececea; --pale: #a3a8b3; --line: #343944;
    --focus: #8fb8ff;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
.item {
  display: grid; grid-template-columns: minmax(0, 7fr) minmax(0, 5fr); gap: 1.5rem;
  align-items: start; background: var(--card); border: 1px solid var(--line);
  border-radius: .75rem; padding: 1.25rem; margin: 0 0 1.5rem;
}
.stage {
  position: relative; overflow: hidden; border-radius: .4rem; margin: 0 auto;
  width: min(100%, 75vh * var(--ratio));
}
.stage img { display: block; width: 100%; height: auto; }
.stage canvas { position: absolute; inset: 0; width: 100%; height: 100%; }
figure { margin: 0; }
figcaption {
  color: var(--pale); font-size: .875rem; margin-top: .4rem; text-align: center;
  overflow-wrap: anywhere;
}
.captions { list-style: none; margin: 0; padding: 0; }
.caption { padding: .5rem 0 .75rem; }
.caption + .caption { border-top: 1px solid var(--line); }
.words { display: flex; flex-wrap: wrap; gap: .1rem; margin: 0 -.3rem; }
.word {
  font: inherit; font-size: 1.05rem; color: inherit; background: none; border: 0;
  border-radius: .4rem; padding: .35rem .3rem; min-width: 1.5rem; cursor: pointer;
  max-width: 100%; overflow-wrap: anywhere; touch-action: manipulation;
}
.caption:first-child .word { font-size: 1.4rem; line-height: 1.3; }
.word:hover { background: var(--line); }
.word.shown { background: var(--mark); color: var(--mark-ink); }
.word[aria-pressed="true"] { box-shadow: inset 0 -.18rem 0 var(--mark-ink); }
:focus-visible { outline: .15rem solid var(--focus); outline-offset: .1rem; }
.below { display: flex; align-items: center; gap: .75rem; margin-top: .25rem; }
.play {
  font: inherit; font-size: .9rem; color: inherit; background: var(--paper); cursor: pointer;
  border: 1px solid var(--line); border-radius: 2rem; padding: .3rem .9rem; min-width: 5rem;
}
.play:hover { border-color: var(--pale); }
.score { color: var(--pale); font-size: .875rem; }
@media (max-width: 52rem) {
  .item { grid-template-columns: minmax(0, 1fr); gap: .5rem; padding: .75rem; }
  .stage { width: min(100%, 55vh * var(--ratio)); }
  .caption:first-child .word { font-size: 1.25rem; padding: .45rem .35rem; }
}
"""
"""Of photos with their captions, which the page of `captioner serve` shows as well."""

STYLE = (
    VIEWER_STYLE
    + """
header, main { max-width: 76rem; margin: 0 auto; padding: 1rem 1.25rem; }
header { padding-top: 1.75rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .25rem; }
header p { margin: 0; color: var(--pale); max-width: 46rem; }
kbd {
  font: inherit; font-size: .85em; border: 1px solid var(--line); border-radius: .3em;
  padding: .05em .35em; background: var(--card);
}
.strength { display: flex; align-items: center; gap: .6rem; margin-top: .75rem; }
.strength input { width: 14rem; max-width: 55vw; accent-color: var(--mark); }
@media (max-width: 52rem) {
  header, main { padding-left: .75rem; padding-right: .75rem; }
}
"""
)
