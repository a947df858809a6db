// Builds one script, one style sheet and the icon, under names without hashes: the binary embeds them by name, and the
// same sources give the same bytes on every machine.
import { defineConfig } from 'vite';

export default defineConfig({
    base: './',
    esbuild: { jsx: 'automatic', jsxImportSource: 'preact', legalComments: 'none' },
    build: {
        outDir: '../crates/admin/page',
        emptyOutDir: true,
        target: ['chrome107', 'firefox110', 'safari16'],
        modulePreload: { polyfill: false },
        // The policy of content allows no `data:` but for images; nothing is inlined.
        assetsInlineLimit: 0,
        cssCodeSplit: false,
        rollupOptions: {
            output: {
                inlineDynamicImports: true,
                entryFileNames: 'offramp.js',
                assetFileNames: 'offramp[extname]',
            },
        },
    },
});
