/** Tables: a caption, headers that sort, cells of text. */
import type { ComponentChildren, VNode } from 'preact';
import { useState } from 'preact/hooks';

export interface TableColumn<R> {
    key: string;
    label: string;
    numeric?: boolean;
    /** Left out on a narrow screen. */
    minor?: boolean;
    /** Heads its row. */
    head?: boolean;
    /** Rows may be ordered by it. */
    by?: (row: R) => string | number | null;
    cell: (row: R) => ComponentChildren;
}

export interface TableProps<R> {
    caption: string;
    columns: readonly TableColumn<R>[];
    rows: readonly R[];
    rowKey: (row: R, at: number) => string | number;
    rowClass?: (row: R) => string | undefined;
    /** Said in place of an empty table. */
    empty: string;
    captionHidden?: boolean;
}

interface Order {
    key: string;
    descending: boolean;
}

export function Table<R>(props: TableProps<R>): VNode {
    const { caption, columns, rows, rowKey, rowClass, empty, captionHidden } = props;
    const [order, setOrder] = useState<Order | null>(null);
    const ordered = sorted(rows, columns, order);
    const turn = ({ key, numeric }: TableColumn<R>) =>
        setOrder((before) => (before?.key === key ? { key, descending: !before.descending } : { key, descending: numeric === true }));
    return (
        <div class="scroll" role="region" aria-label={caption} tabIndex={0}>
            <table>
                <caption class={captionHidden ? 'hidden' : undefined}>{caption}</caption>
                <thead>
                    <tr>
                        {columns.map((column) => (
                            <th
                                key={column.key}
                                scope="col"
                                class={classes(column)}
                                aria-sort={order?.key === column.key ? (order.descending ? 'descending' : 'ascending') : undefined}
                            >
                                {column.by ? (
                                    <button type="button" class="sort" onClick={() => turn(column)}>
                                        {column.label}
                                    </button>
                                ) : (
                                    column.label
                                )}
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody>
                    {ordered.length === 0 && (
                        <tr>
                            <td class="dim" colSpan={columns.length}>
                                {empty}
                            </td>
                        </tr>
                    )}
                    {ordered.map((row, at) => (
                        <tr key={rowKey(row, at)} class={rowClass?.(row)}>
                            {columns.map((column) =>
                                column.head ? (
                                    <th key={column.key} scope="row" class={classes(column)}>
                                        {column.cell(row)}
                                    </th>
                                ) : (
                                    <td key={column.key} class={classes(column)}>
                                        {column.cell(row)}
                                    </td>
                                ),
                            )}
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}

function classes<R>({ numeric, minor }: TableColumn<R>): string | undefined {
    const names = [numeric && 'number', minor && 'minor'].filter(Boolean);
    return names.length === 0 ? undefined : names.join(' ');
}

function sorted<R>(rows: readonly R[], columns: readonly TableColumn<R>[], order: Order | null): readonly R[] {
    const by = order && columns.find((column) => column.key === order.key)?.by;
    if (!order || !by) return rows;
    const sign = order.descending ? -1 : 1;
    return [...rows].sort((left, right) => {
        const [a, b] = [by(left), by(right)];
        if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
        return (a < b ? -1 : a > b ? 1 : 0) * sign;
    });
}
