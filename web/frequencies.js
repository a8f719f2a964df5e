/* How a model uses the frequencies of its positions: layer by frequency, queries and keys. The server draws the map; the
 * page shows the image, and opens it by itself, where each cell says its number. */

import { jobPath } from '/api.js';
import { h, setAttr } from '/dom.js';

export class FrequencyMap {
	/* root: an element to fill. id: its heading's, and the stem of its other ids. */
	constructor(root, { id }) {
		this.image = h('img', { id: `${id}-map`, class: 'map' });
		this.whole = h('a', { target: '_blank', rel: 'noopener', title: 'Open the map: its cells say their numbers' },
			this.image);
		this.svg = h('a', { class: 'button small' }, 'SVG');
		root.replaceChildren(
			h('header', { class: 'panel-head' }, h('h2', { id }, 'Use of frequencies'),
				h('div', { class: 'tools' }, this.svg)),
			h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Map of frequencies' }, this.whole));
	}

	/* One series (of seriesOf). */
	show([{ id, model, dataset }]) {
		const path = jobPath(id, '/frequencies.svg');
		setAttr(this.image, 'alt', `Mean magnitude of queries and of keys by layer and frequency: ${model} on ${dataset}. ` +
			'The numbers stand in the CSV.');
		setAttr(this.image, 'src', path);
		setAttr(this.whole, 'href', path);
		setAttr(this.svg, 'href', path);
		setAttr(this.svg, 'download', `job-${id}-frequencies.svg`);
	}

	destroy() {} /* nothing outlives the root */
}
