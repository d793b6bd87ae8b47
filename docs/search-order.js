// How hits of the search are ordered: pages that explain come first, of equal ones those that most people need; then single
// names, tutorials, what is inside, and the list of all names.
var First = /^(server|client|around-a-call|http)$/;
var Tutorial = /^tutorial-/;
var Inside = /^(decisions\/|architecture|words|contributing|requirements|figures)/;
var Scorer = {
  score: ([page, title, anchor, description, score]) => score + (page === "api" && !anchor ? -50 : First.test(page) ? 3 : Tutorial.test(page) ? -6 : Inside.test(page) ? -12 : 0),
  objNameMatch: 4,
  objPartialMatch: 1,
  objPrio: { 0: 0, 1: -2, 2: -4 },
  objPrioDefault: 0,
  title: 16,
  partialTitle: 8,
  term: 6,
  partialTerm: 2,
};
