/** A refusal where its data would be: the rest of the page lives on. */
import type { Problem } from '../api';

export function ProblemBox({ problem, retry }: { problem: Problem; retry?: () => void }) {
    const errors = Array.isArray(problem.members.errors) ? problem.members.errors : [];
    return (
        <div class="problem" role="alert">
            <p>{problem.message}</p>
            {errors.length > 0 && (
                <ul>
                    {errors.map((error, at) => (
                        <li key={at}>{sentence(error)}</li>
                    ))}
                </ul>
            )}
            {retry && (
                <button type="button" onClick={retry}>
                    Try again
                </button>
            )}
        </div>
    );
}

function sentence(error: unknown): string {
    if (error !== null && typeof error === 'object') {
        const { at, text, message } = error as Record<string, unknown>;
        return [at, text ?? message].filter((part) => typeof part === 'string').join(': ');
    }
    return String(error);
}
