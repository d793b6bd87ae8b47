// The search of this site. Sphinx finds the pages that have each word of a question; people write sentences, in their own words. So
// this ranks the sections of finding.py: rare words weigh more than usual ones, those of titles, headings and of the questions of
// asked.toml more than those of the text, and a second use of a word less than the first (BM25).
var Scorer = { objNameMatch: 4, objPartialMatch: 1, objPrio: { 0: 0, 1: -2, 2: -4 }, objPrioDefault: 0, title: 16, partialTitle: 8, term: 6, partialTerm: 2 };

var Finding = {
  // What a page counts beside one that explains: single cases, the reference, what is inside.
  share: (name) =>
    /^(decisions\/|architecture|words|contributing|requirements|figures|error-texts|roadmap)/.test(name) ? 0.4
    : /^(changelog|tutorial-|coming-from|command-line-reference|index|logins)/.test(name) ? 0.7
    : /^(errors|limits|protocol|versions|security|keycloak|with-)/.test(name) ? 0.85
    : 1,

  prepare(index, stem) {
    const stemWord = (word) => index.whole[stem(word)] ?? stem(word);
    const small = new Set(index.small);
    const byPage = new Map();
    const pageLengths = index.pages.map(() => 0);
    const sectionLengths = index.sections.map(() => 0);
    for (const [word, flat] of Object.entries(index.words)) {
      const pages = new Map();
      for (let at = 0; at < flat.length; at += 2) {
        const page = index.sections[flat[at]][0];
        pages.set(page, (pages.get(page) ?? 0) + flat[at + 1]);
        pageLengths[page] += flat[at + 1];
        sectionLengths[flat[at]] += flat[at + 1];
      }
      byPage.set(word, pages);
    }
    const same = new Map();
    for (const group of index.groups) for (const word of group) same.set(word, [...(same.get(word) ?? []), ...group.filter((each) => each !== word)]);
    const mean = (all) => all.reduce((sum, each) => sum + each, 0) / all.length;
    const titles = index.pages.map(([, , ...words]) => new Set(words));
    const headings = index.sections.map(([, , , ...words]) => new Set(words));
    const usual = new Set([...index.questions.flatMap(([, ...words]) => words), ...titles.flatMap((words) => [...words])]);
    return { index, titles, headings, usual, small, byPage, same, stemWord, pageLengths, sectionLengths, pageMean: mean(pageLengths), sectionMean: mean(sectionLengths) };
  },

  // The words of a question, each with those that count like it and what these count.
  wanted(known, question) {
    const found = new Map();
    for (const name of question.match(/[\p{L}\p{N}]+/gu) ?? []) {
      const lower = name.toLowerCase();
      if (known.small.has(lower)) continue;
      const word = known.stemWord(lower);
      const alike = new Map(known.byPage.has(word) ? [[word, 1]] : []);
      for (const each of known.same.get(word) ?? []) if (known.byPage.has(each)) alike.set(each, 0.5);
      if (!alike.size && word.length > 3) // a word that is in no page: one that begins with it, or has one letter otherwise
        for (const each of known.byPage.keys()) if (each.startsWith(word) || Finding.near(each, word)) alike.set(each, 0.5);
      if (alike.size) found.set(word, alike);
    }
    return found;
  },

  near(one, other) {
    if (Math.abs(one.length - other.length) > 1 || other.length < 5) return false;
    let start = 0;
    while (start < one.length && one[start] === other[start]) start += 1;
    const rest = (text, more) => text.slice(start + more);
    return rest(one, 1) === rest(other, 1) || rest(one, 1) === rest(other, 0) || rest(one, 0) === rest(other, 1)
      || (one[start] === other[start + 1] && one[start + 1] === other[start] && rest(one, 2) === rest(other, 2));
  },

  // The pages that answer a question, the best first: [page, anchor, heading, score].
  rank(known, question, excluded = []) {
    const { index, byPage } = known;
    const wanted = Finding.wanted(known, question);
    const count = index.pages.length;
    const scores = new Map();
    const add = (into, key, value) => into.set(key, (into.get(key) ?? 0) + value);
    const sections = new Map();
    const weights = new Map();
    let whole = 0;
    const covered = new Map();
    for (const [word, alike] of wanted) {
      const holders = new Map();
      const parts = new Map();
      for (const [each, share] of alike) {
        for (const [page, times] of byPage.get(each)) add(holders, page, share * times);
        const flat = index.words[each];
        for (let at = 0; at < flat.length; at += 2) add(parts, flat[at], share * flat[at + 1]);
      }
      const rare = byPage.get(word)?.size ?? holders.size;
      const weight = Math.log(1 + (count - rare + 0.5) / (rare + 0.5));
      weights.set(word, weight);
      whole += weight;
      for (const [page, times] of holders) {
        const long = Finding.B * (known.pageLengths[page] / known.pageMean) + 1 - Finding.B;
        add(scores, page, (weight * times) / (times + Finding.K * long));
        add(covered, page, weight * Math.min(1, times / 4));
      }
      for (const [section, times] of parts) {
        const long = Finding.B * (known.sectionLengths[section] / known.sectionMean) + 1 - Finding.B;
        add(sections, section, (weight * times) / (times + (Finding.K / 2) * long));
      }
    }
    if (!whole) return [];
    const best = new Map();
    const led = new Map(); // for each page the section whose heading has the most of the question, if it has a good part of it
    for (const [section, score] of sections) {
      const [page, anchor] = index.sections[section];
      best.set(page, Math.max(best.get(page) ?? 0, score));
      const has = (heading) => [...wanted].reduce((sum, [word, alike]) => sum + ([...alike.keys()].some((each) => heading.has(each)) ? weights.get(word) / whole : 0), 0);
      const share = anchor ? has(known.headings[section]) : 0;
      if (share >= Finding.H && share > has(known.titles[page]) && !(led.get(page)?.[1] >= share)) led.set(page, [section, share]);
    }
    const asked = new Map(); // how much of one question of a page is in this one
    for (const [page, ...words] of index.questions) {
      let common = 0;
      for (const [word, alike] of wanted) common += weights.get(word) * Math.max(0, ...[...alike].map(([each, share]) => (words.includes(each) ? share : 0)));
      const score = common / (whole + Finding.Q * words.length);
      if (common && !(asked.get(page) >= score)) asked.set(page, score);
    }
    for (const word of excluded) for (const page of byPage.get(word)?.keys() ?? []) scores.delete(page);
    return [...scores]
      .map(([page, score]) => {
        const [name, title] = index.pages[page];
        const [, anchor, heading] = led.has(page) ? index.sections[led.get(page)[0]] : [page, "", title];
        const titled = known.titles[page];
        const named = [...wanted.values()].every((alike) => [...alike.keys()].some((each) => titled.has(each))) ? Math.min(1, wanted.size / titled.size) : 0;
        const value = Finding.share(name) * ((score + Finding.S * best.get(page)) / whole + Finding.A * (asked.get(page) ?? 0) + Finding.T * named) * (Finding.C + covered.get(page) / whole);
        return [name, title, anchor, heading, value];
      })
      .sort((one, other) => other[4] - one[4])
      .filter((each, place, all) => each[4] >= all[0][4] / 8);
  },
  B: 0.2, K: 14, S: 0.5, A: 1.2, Q: 0.08, C: 0.4, T: 0.6, H: 0.35,
};

if (typeof Search !== "undefined" && typeof FindingIndex !== "undefined") {
  // [page, title, anchor, description, score, file, kind] of each hit, the best last. A name of the API that is the whole question comes
  // first, or after three pages if it is a usual word in lower case; other names come after the pages.
  Search._performSearch = (query, _wanted, _excluded, _highlighted, objectTerms) => {
    const stemmer = new Stemmer();
    const known = (Search.known ??= Finding.prepare(FindingIndex, (word) => stemmer.stemWord(word)));
    const { docnames, filenames } = Search._index;
    const files = new Map(docnames.map((name, at) => [name, filenames[at]]));
    document.getElementById("search-progress")?.replaceChildren();
    const typed = query.split(/\s+/);
    const refused = (each) => /^-\p{L}{2}/u.test(each); // neither an option, as --http or -v, nor an error code, as -32601
    const kept = typed.filter((each) => !refused(each)).join(" ");
    const excluded = typed.filter(refused).flatMap((each) => each.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).map(known.stemWord);
    const pages = Finding.rank(known, kept, excluded).map(([name, title, anchor, heading, score]) =>
      [name, anchor ? `${title} > ${heading}` : title, anchor ? `#${anchor}` : "", null, score, files.get(name), SearchResultKind.text]);
    const seen = new Set();
    const names = [...objectTerms].flatMap((term) => Search.performObjectSearch(term, objectTerms))
      .filter(([name, , anchor]) => !seen.has(name + anchor) && seen.add(name + anchor));
    const whole = ([, title]) => title.split(".").at(-1).toLowerCase() === query.trim().toLowerCase();
    const better = (one, other) => other[4] - one[4];
    const word = query.trim(); // a usual one, such as roots, asks for pages rather than for a member of a class
    const first = word === word.toLowerCase() && known.usual.has(known.stemWord(word)) ? 3 : 0;
    const shown = [...pages.slice(0, first), ...names.filter(whole), ...pages.slice(first), ...names.filter((each) => !whole(each)).sort(better).slice(0, 20)];
    return shown.filter(([name]) => files.has(name)).reverse();
  };
}
