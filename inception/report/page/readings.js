/* A line at the pointer, with the values of all curves there, for each plot that lists values (svg.h). It reads only what is in
 * the page, which shows the same curves without it. Arrow keys move the line of a plot that has the focus, a finger shows it
 * by touch, Escape hides it. */
(() => {
    'use strict';
    const ROWS = 14; // of a box
    const SPACE = 'http://www.w3.org/2000/svg';

    /* From 0 to 1 along an axis "LOW HIGH LOGARITHMIC". */
    function axis(text) {
        const [low, high, logarithmic] = text.split(' ').map(Number);
        const place = logarithmic ? Math.log : (x) => x;
        return (x) => Math.min(Math.max((place(x) - place(low)) / (place(high) - place(low)), 0), 1);
    }

    /* The curves of a plot: names, and by the text of each x that of its y. */
    function curvesOf(svg) {
        return [...svg.querySelectorAll('g.values')].map(({dataset}) => {
            const y = dataset.y.split(' '), high = dataset.high ? dataset.high.split(' ') : null;
            return {name: dataset.name, tint: `var(--c${dataset.tint})`,
                    at: new Map(dataset.x.split(' ').map((x, i) => [x, {y: y[i], high: high && high[i]}]))};
        });
    }

    function add(parent, name, className, text) {
        const made = document.createElement(name);
        made.className = className;
        made.textContent = text;
        return parent.appendChild(made);
    }

    function shape(parent, name, attributes) {
        const made = parent.appendChild(document.createElementNS(SPACE, name));
        for (const key in attributes) made.setAttribute(key, attributes[key]);
        return made;
    }

    function valueText(value) {
        const text = (number) => number === '-' ? 'not finite' : number.replaceAll('-', '\u2212');
        return value.high && value.high !== value.y ? `${text(value.y)} to ${text(value.high)}` : text(value.y);
    }

    function follow(svg) {
        const axes = svg.querySelector('g.axes').dataset, curves = curvesOf(svg), area = svg.parentElement;
        const alongX = axis(axes.x), alongY = axis(axes.y), words = axes.words ? axes.words.split('\n') : null;
        const places = [...new Set(curves.flatMap((curve) => [...curve.at.keys()]))]
            .map((text) => ({text, share: alongX(Number(text))})).sort((a, b) => a.share - b.share || a.text - b.text);
        const cursor = shape(svg, 'g', {class: 'cursor', 'aria-hidden': 'true'}), box = add(area, 'div', 'readout', '');
        let now = -1;
        box.setAttribute('role', 'status');

        function hide() {
            now = -1;
            cursor.replaceChildren();
            box.replaceChildren();
            box.hidden = true;
        }

        function show(index) {
            if (index === now) return;
            now = index;
            const {text, share} = places[index], height = parseFloat(svg.style.height);
            const found = curves.filter((curve) => curve.at.has(text)).map((curve) => ({curve, value: curve.at.get(text)}))
                .sort((a, b) => (Number(b.value.y) || 0) - (Number(a.value.y) || 0));
            cursor.replaceChildren();
            box.replaceChildren();
            shape(cursor, 'line', {x1: `${100 * share}%`, x2: `${100 * share}%`, y1: 0, y2: height});
            add(box, 'b', '', words ? `${axes.label} ${words[text]}` : axes.label ? `${axes.label} ${text}` : text);
            for (const {curve, value} of found.slice(0, ROWS)) {
                const row = add(box, 'div', '', '');
                add(row, 'i', '', '').style.background = curve.tint;
                add(row, 'span', '', curve.name);
                add(row, 'strong', '', valueText(value));
                if (value.y !== '-' && !value.high)
                    shape(cursor, 'circle', {cx: `${100 * share}%`, cy: height * (1 - alongY(Number(value.y))), r: 4}).style.fill = curve.tint;
            }
            if (found.length > ROWS) add(box, 'div', '', `and ${found.length - ROWS} more`);
            box.hidden = false;
            const plot = svg.getBoundingClientRect(), all = area.getBoundingClientRect(), x = plot.left - all.left + share * plot.width;
            const left = share > 0.5 ? x - box.offsetWidth - 14 : x + 14;
            box.style.left = `${Math.max(0, Math.min(left, all.width - box.offsetWidth))}px`;
        }

        function point(event) {
            const plot = svg.getBoundingClientRect(), share = (event.clientX - plot.left) / plot.width;
            let best = 0;
            places.forEach((place, i) => {
                if (Math.abs(place.share - share) < Math.abs(places[best].share - share)) best = i;
            });
            show(best);
        }

        const far = Math.max(1, Math.round(places.length / 10));
        const moves = {ArrowLeft: -1, ArrowRight: 1, PageUp: -far, PageDown: far, Home: -Infinity, End: Infinity};
        hide();
        svg.tabIndex = 0;
        area.addEventListener('pointermove', point);
        area.addEventListener('pointerdown', point);
        area.addEventListener('pointerleave', (event) => event.pointerType === 'mouse' && hide());
        document.addEventListener('pointerdown', (event) => area.contains(event.target) || hide());
        svg.addEventListener('blur', hide);
        svg.addEventListener('focus', () => svg.matches(':focus-visible') && now < 0 && show(places.length - 1));
        svg.addEventListener('keydown', (event) => {
            if (event.key === 'Escape') hide();
            if (!(event.key in moves) || event.ctrlKey || event.altKey || event.metaKey) return;
            event.preventDefault();
            show(Math.min(Math.max((now < 0 ? places.length - 1 : now) + moves[event.key], 0), places.length - 1));
        });
    }

    for (const axes of document.querySelectorAll('svg.chart > g.axes')) follow(axes.parentElement);
})();
