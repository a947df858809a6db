/** Short words about what has just been done or has gone wrong, on the screen and for screen readers. */
import { useEffect } from 'preact/hooks';
import { useWatched, Watched } from '../cell';

const SHOWN_MS = 8000;

const said = new Watched('');

export function announce(text: string): void {
    // The same words twice are said twice: the region must change.
    said.set(said.value === text ? `${text}\u00a0` : text);
}

export function Announcer() {
    const text = useWatched(said);
    useEffect(() => {
        if (text === '') return undefined;
        const timer = setTimeout(() => said.set(''), SHOWN_MS);
        return () => clearTimeout(timer);
    }, [text]);
    return (
        <p class={text === '' ? 'hidden' : 'announcer'} role="status">
            {text}
        </p>
    );
}
