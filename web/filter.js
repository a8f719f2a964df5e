/* Which jobs the list shows: those of a state, a model and a task, or all. It owns the three controls and knows no jobs:
 * the server does the filtering. */

import { h } from '/dom.js';

const STATES = ['queued', 'running', 'succeeded', 'failed', 'cancelled'];

export class Filter {
	/* root: an element to fill. changed(): other jobs are to be shown. */
	constructor(root, changed) {
		const control = (what) => h('select', { id: `filter-${what}`, 'aria-label': `Only jobs of a ${what}`, onchange: changed });
		this.controls = new Map(['state', 'model', 'task'].map((what) => [what, control(what)]));
		root.replaceChildren(...this.controls.values());
		['state', 'model', 'task'].forEach((what) => this.offer(what, what === 'state' ? STATES : []));
	}

	/* What can be chosen; a choice stays, also of a model that is gone. */
	offer(what, values) {
		const select = this.controls.get(what);
		const all = new Set([...values, select.value].filter(Boolean));
		const key = [...all].join('\n');
		if (key === select.dataset.values)
			return;
		const { value } = select;
		select.dataset.values = key;
		select.replaceChildren(h('option', { value: '' }, `All ${what}s`), ...[...all].map((v) => h('option', { value: v }, v)));
		select.value = value;
	}

	/* {state, model, task}, of what was chosen; null where nothing was. */
	query() {
		const chosen = [...this.controls].map(([what, select]) => [what, select.value]).filter(([, value]) => value);
		return chosen.length ? Object.fromEntries(chosen) : null;
	}

	clear() {
		for (const select of this.controls.values())
			select.value = '';
	}
}
