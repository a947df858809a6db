/** A bounded history of samples: a page that is open for a day holds as much as one that is open for an hour. */

export type Series = (number | null)[];

export class Ring {
    readonly #columns: Float64Array[];
    #next = 0;
    #length = 0;
    /** Samples ever pushed: groups of a window keep their borders while it moves. */
    #pushed = 0;

    constructor(
        readonly capacity: number,
        readonly width: number,
    ) {
        this.#columns = Array.from({ length: width }, () => new Float64Array(capacity).fill(NaN));
    }

    get length(): number {
        return this.#length;
    }

    push(row: readonly (number | null | undefined)[]): void {
        for (let at = 0; at < this.width; at += 1) {
            (this.#columns[at] as Float64Array)[this.#next] = row[at] ?? NaN;
        }
        this.#next = (this.#next + 1) % this.capacity;
        this.#length = Math.min(this.#length + 1, this.capacity);
        this.#pushed += 1;
    }

    /** The latest `count` samples of some columns, as means of groups where there are more than `points`. */
    window(columns: readonly number[], count: number, points: number): Series[] {
        const kept = Math.min(count, this.#length);
        const group = Math.max(1, Math.ceil(count / points));
        const first = this.#pushed - kept;
        const begin = group === 1 ? first : Math.ceil(first / group) * group;
        return columns.map((column) => {
            const values = this.#columns[column] as Float64Array;
            const series: Series = [];
            for (let from = begin; from < this.#pushed; from += group) {
                series.push(this.#mean(values, from, Math.min(from + group, this.#pushed)));
            }
            return series;
        });
    }

    #mean(values: Float64Array, from: number, until: number): number | null {
        let sum = 0;
        let counted = 0;
        for (let sample = from; sample < until; sample += 1) {
            const back = this.#pushed - sample;
            const value = values[(this.#next - back + this.capacity) % this.capacity] as number;
            if (!Number.isNaN(value)) {
                sum += value;
                counted += 1;
            }
        }
        return counted === 0 ? null : sum / counted;
    }
}

/** The latest `capacity` items, the newest first. */
export class Latest<T> {
    #items: T[] = [];

    constructor(readonly capacity: number) {}

    add(items: readonly T[]): void {
        const newest = items.slice(-this.capacity).reverse();
        this.#items = [...newest, ...this.#items.slice(0, this.capacity - newest.length)];
    }

    clear(): void {
        this.#items = [];
    }

    get items(): readonly T[] {
        return this.#items;
    }
}
