/* Colours of jobs. A job's colour is a slot (0..7) that it keeps while the page is open; slots differ in
 * marker and dash too. */

const N_SLOTS = 8;
export const MARKERS = ['circle', 'rect', 'triangle', 'rectRot'];
const SHAPES = {
	circle: 'M12 8a4 4 0 1 0 8 0a4 4 0 1 0-8 0z',
	rect: 'M12.5 4.5h7v7h-7z',
	triangle: 'M16 3.5l5 8.5h-10z',
	rectRot: 'M16 3l5 5l-5 5l-5-5z',
};

const slots = new Map();

/* Gives every listed job its slot: the one it had, else the first that no other listed job has. */
function assignSlots(ids) {
	const taken = new Set(ids.filter((id) => slots.has(id)).map((id) => slots.get(id)));
	for (const id of ids) {
		if (slots.has(id))
			continue;
		const free = [...Array(N_SLOTS).keys()].find((s) => !taken.has(s)) ?? id % N_SLOTS;
		slots.set(id, free);
		taken.add(free);
	}
}

/* For jobs that are drawn together: frees colours of those that are not when a drawn one would have to
 * share. */
export function settleSlots(ids) {
	const used = new Map();
	for (const id of ids) {
		const slot = slots.get(id);
		if (slot !== undefined && used.has(slot))
			slots.delete(id);
		else if (slot !== undefined)
			used.set(slot, id);
	}
	assignSlots(ids);
}

export const slotOf = (id) => slots.get(id) ?? id % N_SLOTS;

/* A line with its marker, as in a curve; or a bar. */
export function swatch(id, bar = false) {
	const slot = slotOf(id);
	const make = (tag, attrs) => {
		const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
		for (const [k, v] of Object.entries(attrs))
			node.setAttribute(k, v);
		return node;
	};
	const svg = make('svg', { viewBox: '0 0 32 16', class: `swatch slot-${slot}`, 'aria-hidden': 'true' });
	if (bar) {
		svg.append(make('path', { d: 'M4 3h24v10h-24z', class: slot >= 4 ? 'mark hollow' : 'mark' }));
		return svg;
	}
	svg.append(make('path', { d: 'M1 8h30', class: slot >= 4 ? 'line dashed' : 'line' }));
	svg.append(make('path', { d: SHAPES[MARKERS[slot % 4]], class: slot >= 4 ? 'mark hollow' : 'mark' }));
	return svg;
}

/* The style sheet's colours, as a canvas wants them. */
export function theme() {
	const style = getComputedStyle(document.documentElement);
	const get = (name) => style.getPropertyValue(name).trim();
	return { get, text: get('--text'), quiet: get('--quiet'), line: get('--line'), panel: get('--panel') };
}
