"""svg_chart.py - line and point charts as SVG text: axes with units, labels beside what they name, light and dark.

A Chart is one panel in data coordinates; `document` puts panels side by side. Labels move up or down until they cover no
point and no label that was there before.
"""
import math

LIGHT = ('#c2410c', '#1d6fb8', '#2b7a3b', '#8250a8', '#9a7400')  # of colours 0..4
DARK = ('#ff9a5c', '#6cb6ff', '#6fce7f', '#d2a8ff', '#e6c84f')


def palette(colors):
    return ''.join(f'.f{i}{{fill:{c}}}.s{i}{{stroke:{c}}}' for i, c in enumerate(colors))


STYLE = f'''<style>
text{{font:12px system-ui,"DejaVu Sans",sans-serif;fill:#24292f}}
.title{{font-weight:600;font-size:13px}}.axis{{fill:#57606a}}.page{{fill:#fff}}
.grid{{stroke:#d8dee4}}.frame,.roof{{stroke:#57606a}}.line{{fill:none;stroke-width:2}}.name{{font-weight:600}}
.dashed{{stroke-dasharray:5 4}}.lead{{stroke-width:.7;opacity:.6}}
{palette(LIGHT)}
@media(prefers-color-scheme:dark){{text{{fill:#d1d7de}}.axis{{fill:#9da7b3}}.page{{fill:#0d1117}}
.grid{{stroke:#2a313a}}.frame,.roof{{stroke:#8b949e}}
{palette(DARK)}}}
</style>'''


def escape(text):
    return text.replace('&', '&amp;').replace('<', '&lt;')


def si(v):
    """20000 as 20k."""
    if v < 10000:
        return f'{v:,g}'
    for size, unit in ((1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'k')):
        if v >= size:
            return f'{v / size:.3g}{unit}'
    return f'{v:g}'


def steps(high):
    """Round ticks from 0 to about high."""
    step = 10 ** math.floor(math.log10(high / 4))
    step *= next(m for m in (1, 2, 2.5, 5, 10) if high / (m * step) <= 5)
    return [i * step for i in range(int(high / step + 1.0001))]


class Chart:
    LEFT, TOP, RIGHT, BOTTOM = 66, 34, 14, 44

    def __init__(self, title, x_name, y_name, x, y, width, height, x_log=True, y_log=False, x_ticks=None, y_ticks=None,
                 right=0):
        self.width, self.height = width, height
        self.x_log, self.y_log = x_log, y_log
        self.x_low, self.x_high = x
        self.y_low, self.y_high = y
        self.parts, self.taken, self.n_keys = [], [], 0
        self.right = width - self.RIGHT - right
        self.axes(title, x_name, y_name, x_ticks, y_ticks)

    def x(self, v):
        return self.LEFT + self.share(v, self.x_low, self.x_high, self.x_log) * (self.right - self.LEFT)

    def y(self, v):
        return self.height - self.BOTTOM - self.share(v, self.y_low, self.y_high, self.y_log) * (
            self.height - self.TOP - self.BOTTOM)

    @staticmethod
    def share(v, low, high, log):
        return math.log(v / low) / math.log(high / low) if log else (v - low) / (high - low)

    def segment(self, x1, y1, x2, y2, style):
        self.parts.append(f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')

    def text(self, x, y, text, style, anchor='middle', turn=''):
        self.parts.append(f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn}>{escape(text)}</text>')

    def axes(self, title, x_name, y_name, x_ticks, y_ticks):
        left, right, top, bottom = self.LEFT, self.right, self.TOP, self.height - self.BOTTOM
        decades = [10.0 ** k for k in range(-3, 15)]
        for v in x_ticks or decades:
            if self.x_low <= v <= self.x_high * 1.0001:
                self.segment(self.x(v), top, self.x(v), bottom, 'grid')
                self.text(self.x(v), bottom + 16, si(v), 'axis')
        for v in y_ticks or (decades if self.y_log else steps(self.y_high)):
            if self.y_low <= v <= self.y_high * 1.0001:
                self.segment(left, self.y(v), right, self.y(v), 'grid')
                self.text(left - 6, self.y(v) + 4, si(v), 'axis', 'end')
        self.segment(left, bottom, right, bottom, 'frame')
        self.segment(left, top, left, bottom, 'frame')
        self.text(left, 18, title, 'title', 'start')
        self.text((left + right) / 2, self.height - 8, x_name, 'axis')
        middle = (top + bottom) / 2
        self.text(14, middle, y_name, 'axis', turn=f' transform="rotate(-90 14 {middle:.1f})"')

    def line(self, points, color, dashed=False):
        path = 'M' + 'L'.join(f'{self.x(x):.1f} {self.y(y):.1f}' for x, y in points)
        self.parts.append(f'<path class="s{color} line{" dashed" if dashed else ""}" d="{path}"/>')
        for x, y in points:
            self.mark(x, y, color)

    def mark(self, x, y, color):
        self.parts.append(f'<circle class="f{color}" cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3.5"/>')
        self.taken.append((self.x(x) - 4, self.y(y) - 4, self.x(x) + 4, self.y(y) + 4))

    def roof(self, points, name, dashed=False, below=False):
        """A limit; its name stands at its right end."""
        path = 'M' + 'L'.join(f'{self.x(x):.1f} {self.y(y):.1f}' for x, y in points)
        self.parts.append(f'<path class="roof{" dashed" if dashed else ""}" fill="none" d="{path}"/>')
        x, y = self.x(points[-1][0]), self.y(points[-1][1]) + (14 if below else -5)
        self.text(x, y, name, 'axis', 'end')
        self.taken.append((x - 6.2 * len(name), y - 10, x, y + 2))

    def note(self, x, y, name):
        self.text(self.x(x), self.y(y), name, 'axis', 'start')

    def key(self, color, name):
        """What a colour stands for: one line each, at the left below the title."""
        self.n_keys += 1
        y = self.TOP + 4 + 16 * self.n_keys
        self.parts.append(f'<circle class="f{color}" cx="{self.LEFT + 14}" cy="{y - 4}" r="4"/>')
        self.text(self.LEFT + 24, y, name, f'f{color} name', 'start')

    def labels(self, points, color):
        """Names of points (x, y, name) in a column at their right, in their order from above: where nothing is covered."""
        points = sorted(points, key=lambda p: -p[1])
        wide = max(7.2 * len(name) for *_, name in points)
        left = min(max(self.x(x) for x, *_ in points) + 10, self.width - 2 - wide)
        places = [self.y(points[0][1])]
        for _, y, _ in points[1:]:
            places.append(max(self.y(y), places[-1] + 14))
        spread = sum(place - self.y(y) for place, (_, y, _) in zip(places, points)) / len(points)
        for move in sorted(range(-200, 201, 6), key=abs):
            moved = [place - spread + move for place in places]
            boxes = [(left, y - 7, left + 7.2 * len(name), y + 6) for y, (*_, name) in zip(moved, points)]
            if self.TOP <= boxes[0][1] and boxes[-1][3] <= self.height - self.BOTTOM - 2 and not any(
                    a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for a in boxes for b in self.taken):
                break
        self.taken += boxes
        for (x, y, name), place in zip(points, moved):
            if abs(place - self.y(y)) > 6 or left - self.x(x) > 20:
                self.segment(self.x(x), self.y(y), left - 2, place, f's{color} lead')
            self.text(left, place + 4, name, f'f{color} name', 'start')


def document(charts, columns):
    """The charts in rows of `columns`."""
    rows = [charts[i:i + columns] for i in range(0, len(charts), columns)]
    width = max(sum(c.width for c in row) for row in rows)
    height = sum(max(c.height for c in row) for row in rows)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
           STYLE, f'<rect class="page" width="{width}" height="{height}"/>']
    y = 0
    for row in rows:
        x = 0
        for chart in row:
            out += [f'<g transform="translate({x} {y})">', *chart.parts, '</g>']
            x += chart.width
        y += max(c.height for c in row)
    return '\n'.join([*out, '</svg>', ''])
