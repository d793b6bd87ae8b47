// How hits of the search are ordered: pages that explain come first, of equal ones those whose titles have all the words, and those
// that most people need; then single names, tutorials and the reference, what is inside, and the list of all names.
var First = /^(tools|asking|resources|client|http)$/;
var Tutorial = /^tutorial-/;
var Reference = /^(errors|limits|protocol|command-line-reference|security|versions|roadmap)/;
var Inside = /^(decisions\/|architecture|words|contributing|requirements|figures|error-texts|changelog)/;
var Words = (new URLSearchParams(location.search).get("q") || "").toLowerCase().split(/\s+/).filter(Boolean);
var named = title => Words.every(word => title.toLowerCase().includes(word));
var place = (page, title) =>
  Inside.test(page) ? -12 : (First.test(page) ? 3 : Tutorial.test(page) || Reference.test(page) ? -6 : 0) + (named(title) ? 10 : 0);
var Scorer = {
  score: ([page, title, anchor, description, score]) => score + (page !== "api" ? place(page, title) : anchor ? 0 : -50),
  objNameMatch: 4,
  objPartialMatch: 1,
  objPrio: { 0: 0, 1: -2, 2: -4 },
  objPrioDefault: 0,
  title: 16,
  partialTitle: 8,
  term: 6,
  partialTerm: 2,
};
