/** Two people edit: the difference, and the ways to go on. */
import { useState } from 'preact/hooks';
import { announce } from '../../parts/announce';
import { drop, takeUp } from './draft';

export interface ConflictProps {
    version: number;
    difference: unknown;
    done: () => void;
}

export function Conflict({ version, difference, done }: ConflictProps) {
    const [failed, setFailed] = useState(false);
    const go = (work: () => Promise<void>, words: string) => {
        work().then(
            () => {
                announce(words);
                done();
            },
            () => setFailed(true),
        );
    };
    const lines = Array.isArray(difference) ? difference.map(String) : typeof difference === 'string' ? difference.split('\n') : [];
    return (
        <div class="problem" role="alert">
            <p>Somebody else has changed the configuration meanwhile: version {version} is in force. Your text is still here.</p>
            {lines.length > 0 && (
                <ul class="difference" aria-label="What was changed meanwhile">
                    {lines.map((line, at) => (
                        <li key={at}>{line}</li>
                    ))}
                </ul>
            )}
            {failed && <p>The file in force could not be read; try again.</p>}
            <p class="buttons">
                <button type="button" onClick={() => go(takeUp, 'Your text now stands upon the newer version: plan it, and see what it would undo')}>
                    Keep my text, and plan it against version {version}
                </button>
                <button type="button" onClick={() => go(drop, 'Your edit was dropped')}>
                    Drop my text for theirs
                </button>
            </p>
        </div>
    );
}
