/** The difference of two texts by lines, with three lines around each change. */

export interface DifferenceLine {
    sign: ' ' | '+' | '-' | '…';
    text: string;
}

/** Cells of the table of the comparison: of larger texts all lines between the first and the last change are shown. */
const MOST_CELLS = 4_000_000;
const AROUND = 3;

export function difference(before: string, after: string): DifferenceLine[] {
    const [old, now] = [before.split('\n'), after.split('\n')];
    let start = 0;
    while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
    let end = 0;
    while (end < old.length - start && end < now.length - start && old[old.length - 1 - end] === now[now.length - 1 - end]) end += 1;
    if (start === old.length && start === now.length) return [];
    const middle = compared(old.slice(start, old.length - end), now.slice(start, now.length - end));
    const same = (lines: string[]) => lines.map((text): DifferenceLine => ({ sign: ' ', text }));
    return shortened([...same(old.slice(0, start)), ...middle, ...same(old.slice(old.length - end))]);
}

function compared(old: string[], now: string[]): DifferenceLine[] {
    const removed = (text: string): DifferenceLine => ({ sign: '-', text });
    const added = (text: string): DifferenceLine => ({ sign: '+', text });
    if (old.length * now.length > MOST_CELLS) return [...old.map(removed), ...now.map(added)];
    const width = now.length + 1;
    const longest = new Uint32Array((old.length + 1) * width);
    const at = (row: number, column: number) => longest[row * width + column] as number;
    for (let row = old.length - 1; row >= 0; row -= 1) {
        for (let column = now.length - 1; column >= 0; column -= 1) {
            longest[row * width + column] =
                old[row] === now[column] ? at(row + 1, column + 1) + 1 : Math.max(at(row + 1, column), at(row, column + 1));
        }
    }
    const lines: DifferenceLine[] = [];
    let [row, column] = [0, 0];
    while (row < old.length || column < now.length) {
        const [left, right] = [old[row], now[column]];
        if (left !== undefined && left === right) {
            lines.push({ sign: ' ', text: left });
            row += 1;
            column += 1;
        } else if (right === undefined || (left !== undefined && at(row + 1, column) >= at(row, column + 1))) {
            lines.push(removed(left ?? ''));
            row += 1;
        } else {
            lines.push(added(right));
            column += 1;
        }
    }
    return lines;
}

function shortened(lines: DifferenceLine[]): DifferenceLine[] {
    const near = new Uint8Array(lines.length);
    lines.forEach(({ sign }, at) => {
        if (sign !== ' ') near.fill(1, Math.max(0, at - AROUND), at + AROUND + 1);
    });
    const shown: DifferenceLine[] = [];
    lines.forEach((line, at) => {
        if (near[at]) shown.push(line);
        else if (shown.at(-1)?.sign !== '…') shown.push({ sign: '…', text: '' });
    });
    return shown;
}
