// All locks, and which of them are shown in which order.

const collator = new Intl.Collator("en", { numeric: true });

const ORDERS = {
  name: () => 0,
  age: (one, two) => one.since - two.since,
  waiting: (one, two) => two.waiting - one.waiting,
  left: (one, two) => one.until - two.until,
};

export class Locks {
  constructor() {
    this.rows = new Map();
  }

  /** Takes in what is new, and says whether rows changed. */
  apply(news) {
    if (news.all) this.rows.clear();
    for (const name of news.gone) this.rows.delete(name);
    for (const row of news.rows) this.rows.set(row.name, derive(row));
    return news.all || news.gone.length > 0 || news.rows.length > 0;
  }

  get(name) {
    return this.rows.get(name);
  }

  /** What the figures above the list say. */
  figures() {
    let [waiting, line, oldest] = [0, 0, Infinity];
    for (const row of this.rows.values()) {
      waiting += row.waiting;
      line = Math.max(line, row.waiting);
      if (row.since < oldest) oldest = row.since;
    }
    return { locks: this.rows.size, waiting, line, oldest };
  }

  /** The rows to show: locks, and the headlines of groups. */
  view({ filter, sort, grouped, collapsed }) {
    const fits = matcher(filter);
    const found = [...this.rows.values()].filter(fits);
    const order = ORDERS[sort] ?? ORDERS.name;
    found.sort((one, two) => order(one, two) || collator.compare(one.name, two.name));
    return { items: grouped ? group(found, collapsed) : found, found: found.length };
  }
}

/** What is sorted by, and searched in. */
function derive(row) {
  row.since = Math.min(...row.holders.map((holder) => holder.since), Infinity);
  row.until = Math.min(...row.holders.filter((holder) => !holder.forever).map((holder) => holder.until), Infinity);
  const people = [...row.holders, ...row.waiters];
  row.text = [row.name, ...people.map((person) => `${person.label} ${person.owner ?? ""}`)].join("\n").toLowerCase();
  return row;
}

/** Whether a lock fits: `orders/*` is a prefix, everything else is looked for anywhere. */
function matcher(filter) {
  const text = filter.trim();
  if (text === "") return () => true;
  if (text.endsWith("*")) {
    const prefix = text.slice(0, -1);
    return (row) => row.name.startsWith(prefix);
  }
  const words = text.toLowerCase().split(/\s+/);
  return (row) => words.every((word) => row.text.includes(word));
}

/** Puts locks with a common prefix below a headline, in the order in which they come. */
function group(rows, collapsed) {
  const groups = new Map();
  for (const row of rows) {
    const end = row.name.indexOf("/");
    const prefix = end < 0 ? "" : row.name.slice(0, end + 1);
    if (!groups.has(prefix)) groups.set(prefix, []);
    groups.get(prefix).push(row);
  }
  const items = [];
  for (const [prefix, members] of groups) {
    const waiting = members.reduce((sum, row) => sum + row.waiting, 0);
    const isOpen = !collapsed.has(prefix);
    items.push({ group: prefix, size: members.length, waiting, isOpen });
    if (isOpen) items.push(...members);
  }
  return items;
}
