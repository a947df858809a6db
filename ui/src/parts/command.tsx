/** The command that asks the same in a terminal. */
import { announce } from './announce';

export function Command({ text }: { text: string }) {
    const copy = async () => {
        try {
            await navigator.clipboard.writeText(text);
            announce('Copied');
        } catch {
            announce('The browser does not allow copying here; select the text instead');
        }
    };
    return (
        <span class="command">
            <code>{text}</code>
            <button type="button" class="quiet" onClick={() => void copy()} aria-label={`Copy the command ${text}`}>
                Copy
            </button>
        </span>
    );
}
