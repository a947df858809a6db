/** An answer of the log store: a table whose cells filter, its notes, and the command that asks the same. */
import type { ComponentChildren } from 'preact';
import { byteRate, bytes, clock, count, milliseconds, percent, text, words } from '../format';
import type { Cell, Column, LogAnswer } from '../types';
import { Command } from './command';
import { Table, type TableColumn } from './table';

export interface AnswerProps {
    caption: string;
    answer: LogAnswer;
    /** The name of the filter that a column's value is, if it is one. */
    filterOf: (column: string) => string | null;
    filter: (name: string, value: string) => void;
    /** The column whose figures have bars beside them. */
    bar?: string;
    /** The first cell of a row, where it is a link elsewhere. */
    link?: (row: Cell[]) => string | null;
    empty: string;
}

/** A longer text is broken into lines. */
const LONG = 24;

export function AnswerTable({ caption, answer, filterOf, filter, bar: barred, link, empty }: AnswerProps) {
    const { columns, rows } = answer;
    const bar = columns.findIndex(({ name, kind }) => isNumber(kind) && name === barred);
    const most = bar === -1 ? 0 : Math.max(0, ...rows.map((row) => Number(row[bar]) || 0));
    return (
        <>
            <Table
                caption={caption}
                captionHidden
                rows={rows}
                rowKey={(_, at) => at}
                empty={empty}
                columns={columns.map((column, at): TableColumn<Cell[]> => ({
                    key: column.name,
                    label: words(column.name.replace(/_us$/, '')),
                    head: at === 0,
                    numeric: isNumber(column.kind),
                    by: (row) => ordered(row[at] ?? null),
                    cell: (row): ComponentChildren => {
                        const value = row[at] ?? null;
                        const shown = cell(column, value);
                        const target = at === 0 ? link?.(row) : null;
                        if (target) return <a href={target}>{shown}</a>;
                        const name = value === null || value === '' ? null : filterOf(column.name);
                        if (name) {
                            return (
                                <button type="button" class={shown.length > LONG ? 'cell long' : 'cell'} title={`Only ${words(column.name)} ${shown}`} onClick={() => filter(name, String(value))}>
                                    {shown}
                                </button>
                            );
                        }
                        if (at === bar && most > 0) return <Bar value={Number(value)} most={most} shown={shown} />;
                        return shown.length > LONG ? <span class="long">{shown}</span> : shown;
                    },
                }))}
            />
            {!answer.exact && <p class="note">Rare items are left out, and counts are at least what is shown.</p>}
            {answer.notes.map((note, at) => (
                <p key={at} class="note">
                    {note}
                </p>
            ))}
            <p class="same">
                <span class="dim">The same in a terminal:</span> <Command text={answer.command} />
            </p>
        </>
    );
}

function Bar({ value, most, shown }: { value: number; most: number; shown: string }) {
    return (
        <span class="share">
            <span class="share-bar" aria-hidden="true" style={{ width: `${Math.round((value / most) * 100)}%` }} />
            {shown}
        </span>
    );
}

export function isNumber(kind: Column['kind']): boolean {
    return kind !== 'text' && kind !== 'time' && kind !== 'flag';
}

function ordered(value: Cell): string | number | null {
    return typeof value === 'boolean' ? Number(value) : value;
}

export function cell({ name, kind }: Column, value: Cell): string {
    if (value === null || value === undefined) return text(null);
    const number = typeof value === 'number' ? value : NaN;
    switch (kind) {
        case 'bytes':
            return name.endsWith('_per_second') ? byteRate(number) : bytes(number);
        case 'milliseconds':
            return milliseconds(number);
        case 'microseconds':
            return milliseconds(number / 1000);
        case 'time':
            return clock(typeof value === 'boolean' ? null : value);
        case 'percent':
            return percent(number);
        case 'integer':
            // A status is a name, not a quantity.
            return name === 'status' || Number.isNaN(number) ? text(value) : count(number);
        default:
            return text(value);
    }
}
