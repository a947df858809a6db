/** A text area with numbered lines and its faults marked where they are. Tab leaves it, as in every other field. */
import { useEffect, useImperativeHandle, useRef } from 'preact/hooks';
import type { Ref } from 'preact';
import type { Finding } from '../../types';

export interface EditorHandle {
    goTo: (line: number, column: number | null) => void;
}

export interface EditorProps {
    value: string;
    onInput: (text: string) => void;
    errors: readonly Finding[];
    warnings: readonly Finding[];
    describedBy: string;
    handle: Ref<EditorHandle>;
}

/** A longer text has no marks in its lines, which would cost time with each key. */
const MARKED = 200_000;
/** Lines of the numbers at the side; a longer text has marks in the list of faults alone. */
const NUMBERED = 20_000;

export function Editor({ value, onInput, errors, warnings, describedBy, handle }: EditorProps) {
    const area = useRef<HTMLTextAreaElement>(null);
    const numbers = useRef<HTMLDivElement>(null);
    const marks = useRef<HTMLPreElement>(null);
    const lines = value.split('\n');
    const follow = () => {
        const field = area.current;
        if (!field) return;
        if (numbers.current) numbers.current.scrollTop = field.scrollTop;
        if (marks.current) {
            marks.current.scrollTop = field.scrollTop;
            marks.current.scrollLeft = field.scrollLeft;
        }
    };
    useEffect(follow);
    useImperativeHandle(handle, () => ({
        goTo(line, column) {
            const field = area.current;
            if (!field) return;
            const start = field.value.split('\n').slice(0, line - 1).join('\n').length + (line > 1 ? 1 : 0) + Math.max(0, (column ?? 1) - 1);
            field.focus();
            field.setSelectionRange(start, start);
            const height = field.scrollHeight / Math.max(1, field.value.split('\n').length);
            field.scrollTop = Math.max(0, (line - 4) * height);
        },
    }));
    const levels = new Map<number, string>();
    for (const { line } of warnings) if (line) levels.set(line, 'warn');
    for (const { line } of errors) if (line) levels.set(line, 'bad');
    return (
        <div class="editor">
            <div class="numbers" ref={numbers} aria-hidden="true">
                {lines.length <= NUMBERED &&
                    lines.map((_, at) => (
                        <div key={at} class={levels.get(at + 1)}>
                            {at + 1}
                        </div>
                    ))}
            </div>
            <div class="text">
                <pre class="marks" ref={marks} aria-hidden="true">
                    {value.length <= MARKED && <Marks lines={lines} errors={errors} />}
                </pre>
                <textarea
                    ref={area}
                    aria-label="The configuration, in TOML"
                    aria-describedby={describedBy}
                    aria-invalid={errors.length > 0}
                    value={value}
                    onInput={(event) => onInput(event.currentTarget.value)}
                    onScroll={follow}
                    spellcheck={false}
                    autocapitalize="none"
                    autocomplete="off"
                    wrap="off"
                />
            </div>
        </div>
    );
}

/** The text again behind the field, without colour, with its faults underlined. */
function Marks({ lines, errors }: { lines: readonly string[]; errors: readonly Finding[] }) {
    const faults = new Map(errors.filter(({ line }) => line !== null).map((error) => [error.line, error]));
    return (
        <>
            {lines.map((line, at) => {
                const fault = faults.get(at + 1);
                if (!fault) return `${line}\n`;
                const from = Math.max(0, (fault.column ?? 1) - 1);
                const until = Math.max(from + 1, (fault.end_column ?? line.length + 1) - 1);
                return (
                    <span key={at}>
                        {line.slice(0, from)}
                        <mark>{line.slice(from, until) || ' '}</mark>
                        {line.slice(until)}
                        {'\n'}
                    </span>
                );
            })}
        </>
    );
}
