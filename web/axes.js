/* Ranges and ticks of logarithmic axes: the lengths themselves on x, round numbers on y. No DOM. */

/* The range of points with their error bars, widened by a share of its logarithm on both sides. */
export function logRange(lows, highs, pad) {
	const low = Math.log(Math.min(...lows));
	const high = Math.log(Math.max(...highs));
	const room = Math.max((high - low) * pad, 0.04);
	return [Math.exp(low - room), Math.exp(high + room)];
}

/* About seven round numbers in [min, max], evenly spaced. */
export function linearTicks(min, max) {
	const rough = (max - min) / 7;
	const size = 10 ** Math.floor(Math.log10(rough));
	const step = size * [1, 2, 2.5, 5, 10].find((m) => m * size >= rough);
	const ticks = [];
	for (let i = Math.ceil(min / step); i * step <= max; i++)
		ticks.push(Number((i * step).toPrecision(12)));
	return ticks;
}

/* Round numbers of a decade, by how wide the range is. */
const STEPS = [
	[12, [1, 1.5, 2, 3, 4, 5, 7]],
	[60, [1, 2, 3, 5, 7]],
	[3000, [1, 2, 5]],
	[Infinity, [1]],
];

/* About five to nine round numbers in [min, max]: evenly spaced while the range is narrow, else 1-2-5 a
 * decade. */
export function yTicks(min, max) {
	const ratio = max / min;
	if (ratio < 3)
		return linearTicks(min, max);
	const steps = STEPS.find(([below]) => ratio < below)[1];
	const ticks = [];
	for (let d = Math.floor(Math.log10(min)); d <= Math.log10(max); d++)
		for (const s of steps) {
			const tick = Number((s * 10 ** d).toPrecision(12));
			if (tick >= min && tick <= max)
				ticks.push(tick);
		}
	return ticks;
}

/* Of the places, those whose labels fit side by side on `width` pixels: first and last, then powers of
 * two, then the rest. */
export function xTicks(places, min, max, width) {
	const place = (x) => ((Math.log(x) - Math.log(min)) / (Math.log(max) - Math.log(min))) * width;
	const room = (x) => 4 * String(x).length + 5;
	const rank = (x, i) => (i === 0 || i === places.length - 1 ? 0 : Number.isInteger(Math.log2(x)) ? 1 : 2);
	const kept = [];
	const ranked = places.map((x, i) => [rank(x, i), x]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
	for (const [, x] of ranked)
		if (kept.every((k) => Math.abs(place(k) - place(x)) >= room(k) + room(x)))
			kept.push(x);
	return kept.sort((a, b) => a - b);
}
