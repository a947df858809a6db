/** Series over intervals, of which an answer has only those with a request. */

type Series = (number | null)[];

/** Points of a curve with intervals of nothing added: more would not be seen. */
const MOST = 5000;

/** The times and the series with a zero for each interval that is missing between the first and the last. */
export function evenly(times: Series, series: readonly Series[]): Series[] {
    const known = times.filter((time): time is number => time !== null);
    let step = Infinity;
    for (let at = 1; at < known.length; at += 1) {
        const distance = (known[at] as number) - (known[at - 1] as number);
        if (distance > 0 && distance < step) step = distance;
    }
    const [first, last] = [known[0], known.at(-1)];
    if (first === undefined || last === undefined || known.length !== times.length || (last - first) / step > MOST) {
        return [times, ...series];
    }
    const result: Series[] = [[], ...series.map((): Series => [])];
    const push = (time: number, value: (index: number) => number | null) => {
        result[0]?.push(time);
        series.forEach((_, index) => result[index + 1]?.push(value(index)));
    };
    known.forEach((time, at) => {
        const before = known[at - 1];
        // Days and months are not all of one length: a little more than a step is no gap.
        if (before !== undefined) for (let missing = before + step; time - missing > step * 0.5; missing += step) push(missing, () => 0);
        push(time, (index) => series[index]?.[at] ?? null);
    });
    return result;
}
