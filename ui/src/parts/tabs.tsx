/** A list of tabs: one stop of the Tab key; the arrow keys move within. */
import { useRef } from 'preact/hooks';

export interface Tab {
    name: string;
    title: string;
}

export interface TabsProps {
    label: string;
    tabs: readonly Tab[];
    current: string;
    choose: (name: string) => void;
    /** The id of the element that the tabs show. */
    controls: string;
}

export function Tabs({ label, tabs, current, choose, controls }: TabsProps) {
    const list = useRef<HTMLDivElement>(null);
    const onKeyDown = (event: KeyboardEvent) => {
        const at = tabs.findIndex(({ name }) => name === current);
        const last = tabs.length - 1;
        const moves: Record<string, number> = {
            ArrowRight: at === last ? 0 : at + 1,
            ArrowLeft: at === 0 ? last : at - 1,
            Home: 0,
            End: last,
        };
        const target = moves[event.key];
        const next = target === undefined ? undefined : tabs[target];
        if (!next || target === undefined) return;
        event.preventDefault();
        choose(next.name);
        const button = list.current?.children[target];
        if (button instanceof HTMLElement) button.focus();
    };
    return (
        <div class="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={onKeyDown}>
            {tabs.map(({ name, title }) => (
                <button
                    key={name}
                    type="button"
                    role="tab"
                    id={`tab-${name}`}
                    aria-selected={name === current}
                    aria-controls={controls}
                    tabIndex={name === current ? 0 : -1}
                    onClick={() => choose(name)}
                >
                    {title}
                </button>
            ))}
        </div>
    );
}
