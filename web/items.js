/* The items of a job, a page at a time: what each example came to, or each document at each length. Read
 * from the server when somebody opens them; all, or only the wrong or the right ones. */

import { ApiError, api } from '/api.js';
import { h, setHidden, setText } from '/dom.js';
import { count } from '/format.js';

const PAGE = 25;

const number = (v, digits) => (typeof v === 'number' ? v.toFixed(digits) : '–');
const list = (v) => (Array.isArray(v) ? v : [v]);

/* One log-probability a continuation: of several the chosen one strong, the right one marked. */
function logprobs(item) {
	if (list(item.logprobs).length === 1)
		return number(list(item.logprobs)[0], 2);
	const each = list(item.logprobs).map((v, i) => {
		const words = [i === item.choice && 'chosen', i === item.gold && 'gold'].filter(Boolean).join(', ');
		const node = h(i === item.choice ? 'strong' : 'span', { class: i === item.gold ? 'gold' : null, title: words || null },
			number(v, 2));
		return [i ? '  ' : '', node];
	});
	return h('span', { class: 'logprobs' }, each.flat());
}

const verdict = (item) =>
	h('span', { class: `chip ${item.correct ? 'succeeded' : 'failed'}` }, item.correct ? 'right' : 'wrong');

/* [head, cell(item), whether an item has it]: columns in this order, where any item of the page has them. */
const COLUMNS = [
	['Item', (i) => count(i.id), () => true],
	['From', (i) => h('span', { class: 'item-doc', title: i.key }, String(i.doc)), (i) => i.doc !== undefined],
	['Group', (i) => i.group, (i) => i.group !== undefined],
	['Length', (i) => count(i.length), (i) => i.length !== undefined],
	['', verdict, (i) => typeof i.correct === 'boolean'],
	['Choice', (i) => String(i.choice), (i) => i.choice !== undefined && i.choice !== null && list(i.logprobs).length > 1],
	['Gold', (i) => String(i.gold), (i) => i.gold !== undefined && i.gold !== null && list(i.logprobs).length > 1],
	['Log-probability', logprobs, (i) => i.logprobs !== undefined],
	['Tokens', (i) => list(i.n_tokens).map((n) => count(n)).join(' '), (i) => i.n_tokens !== undefined],
	['Characters', (i) => list(i.n_chars).map((n) => count(n)).join(' '), (i) => i.n_chars !== undefined],
	['Loss', (i) => number(i.nll / i.n_tokens, 4), (i) => i.nll !== undefined],
	['Perplexity', (i) => number(Math.exp(i.nll / i.n_tokens), 3), (i) => i.nll !== undefined],
];

export class Items {
	/* job: a finished one. node: its panel. */
	constructor(job) {
		this.id = job.id;
		this.skip = 0;
		const scored = (job.result?.metrics ?? job.partial?.metrics ?? []).some((m) => m.unit === 'fraction');
		const option = (value, text) => h('option', { value }, text);
		this.filter = h('select', { id: 'items-filter', onchange: () => this.go(0) },
			option('', 'All items'), option('false', 'Wrong ones'), option('true', 'Right ones'));
		const button = (text, step) =>
			h('button', { class: 'button small', type: 'button', onclick: () => this.go(this.skip + step * PAGE) }, text);
		this.back = button('Previous', -1);
		this.on = button('Next', 1);
		this.range = h('span', { class: 'quiet', role: 'status' });
		this.tools = h('div', { class: 'tools' }, scored && h('label', { for: 'items-filter', class: 'unseen' }, 'Which items'),
			scored && this.filter, this.back, this.on, this.range);
		this.words = h('p', { class: 'empty' });
		this.retry = h('button', { class: 'button small', type: 'button', onclick: () => this.go(this.skip) }, 'Try again');
		this.alert = h('div', { class: 'form-alert', role: 'alert' });
		this.holder = h('div', { class: 'scroll items', tabindex: '0', role: 'region', 'aria-label': 'Items' });
		const details = h('details', { class: 'values', ontoggle: () => details.open && !this.opened && this.go(0) },
			h('summary', {}, 'Browse items'), this.tools, this.alert, this.retry, this.words, this.holder);
		this.node = details;
		this.say('', '');
	}

	/* What stands in place of the table. */
	say(words, error) {
		setText(this.words, words);
		setHidden(this.words, !words);
		setText(this.alert, error);
		setHidden(this.alert, !error);
		setHidden(this.retry, !error);
		setHidden(this.holder, Boolean(words || error));
	}

	async go(skip) {
		const turn = this.turn = (this.turn ?? 0) + 1; /* an answer to an older question is dropped */
		this.opened = true;
		this.skip = Math.max(0, skip);
		this.back.disabled = this.on.disabled = true;
		setText(this.range, '');
		if (!this.holder.childElementCount)
			this.say('Loading', '');
		this.holder.classList.add('stale');
		try {
			const items = await api.items(this.id, { limit: PAGE + 1, skip: this.skip, correct: this.filter.value });
			if (turn === this.turn)
				this.show(items);
		} catch (error) {
			if (!(error instanceof ApiError))
				throw error;
			if (turn === this.turn)
				this.say('', `${error.message}.`);
		}
	}

	show(items) {
		const shown = items.slice(0, PAGE);
		const columns = COLUMNS.filter(([, , has]) => shown.some(has));
		const row = (item) => h('tr', {}, columns.map(([, cell, has], i) =>
			h(i ? 'td' : 'th', { scope: i ? null : 'row' }, has(item) ? cell(item) : '–')));
		this.holder.replaceChildren(h('table', { class: 'numbers', 'aria-label': 'Items' },
			h('thead', {}, h('tr', {}, columns.map(([head]) => h('th', { scope: 'col' }, head)))),
			h('tbody', {}, shown.map(row))));
		this.holder.classList.remove('stale');
		this.back.disabled = this.skip === 0;
		this.on.disabled = items.length <= PAGE;
		const kind = { '': 'item', false: 'wrong item', true: 'right item' }[this.filter.value];
		setText(this.range, shown.length ? `${kind}s ${count(this.skip + 1)} to ${count(this.skip + shown.length)}` : '');
		this.say(shown.length ? '' : `There is no ${kind}${this.skip ? ' after these' : ''}.`, '');
	}
}
