/* The few helpers that make DOM nodes. Data only ever becomes a text node or an attribute: there is no
 * innerHTML here or anywhere else. Updates happen in place, and only where something changed, so that
 * focus, selection and scroll stay. */

/* h('a', { class: 'x', href: '#', onclick: f }, 'text', child): null, undefined and false children are
 * left out. */
export function h(tag, props, ...children) {
	const node = document.createElement(tag);
	for (const [name, value] of Object.entries(props ?? {})) {
		if (value === null || value === undefined || value === false)
			continue;
		if (name.startsWith('on'))
			node.addEventListener(name.slice(2), value);
		else
			node.setAttribute(name, value === true ? '' : String(value));
	}
	node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
	return node;
}

/* Words of the server, for append(): what stands between backquotes is code. */
export const words = (text) =>
	text.split('`').map((part, i) => (i % 2 ? h('code', {}, part) : part)).filter((part) => part !== '');

export const $ = (id) => document.getElementById(id);

export function setText(node, text) {
	if (node.textContent !== text)
		node.textContent = text;
}

export function setHidden(node, hidden) {
	if (node.hidden !== hidden)
		node.hidden = hidden;
}

export function setAttr(node, name, value) {
	if (value === null || value === undefined)
		node.removeAttribute(name);
	else if (node.getAttribute(name) !== String(value))
		node.setAttribute(name, String(value));
}

/* Makes parent's children one node an item, in order, reusing the node that create(item) made for an
 * item's key and calling update(node, item) on each. */
export function reconcile(parent, items, key, create, update) {
	const old = new Map([...parent.children].map((node) => [node.dataset.key, node]));
	let at = parent.firstElementChild;
	for (const item of items) {
		const k = String(key(item));
		let node = old.get(k);
		if (!node) {
			node = create(item);
			node.dataset.key = k;
		}
		old.delete(k);
		update?.(node, item);
		if (node === at)
			at = at.nextElementSibling;
		else
			parent.insertBefore(node, at);
	}
	for (const node of old.values())
		node.remove();
}

/* Says something to a screen reader without showing it. */
export function announce(text) {
	setText($('announce'), text);
}

/* Asks in the page's dialog; resolves to true for yes. */
export function confirmed(title, text, yes) {
	const dialog = $('confirm');
	setText($('confirm-title'), title);
	setText($('confirm-text'), text);
	setText($('confirm-yes'), yes);
	dialog.returnValue = 'no';
	dialog.showModal();
	return new Promise((resolve) => {
		dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true });
	});
}
