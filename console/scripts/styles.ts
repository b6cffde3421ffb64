import { PurgeCSS } from 'purgecss';
import type { Plugin } from 'vite';

/** PatternFly's fonts stay out: the system's are there already, and cost nothing. */
export function withoutFonts(): Plugin {
  return {
    name: 'without-fonts',
    enforce: 'pre',
    transform(code, id) {
      if (!id.endsWith('.css') || !code.includes('@font-face')) return null;
      return { code: code.replace(/@font-face\s*\{[^}]*\}/g, ''), map: null };
    },
  };
}

/** Rules of the style sheet whose classes no script names are left out. */
export function prunedStyles(): Plugin {
  return {
    name: 'pruned-styles',
    apply: 'build',
    enforce: 'post',
    async generateBundle(_options, bundle) {
      const files = Object.values(bundle);
      const scripts = files.flatMap((file) => (file.type === 'chunk' ? [{ raw: file.code, extension: 'js' }] : []));
      for (const file of files) {
        if (file.type !== 'asset' || !file.fileName.endsWith('.css')) continue;
        const [pruned] = await new PurgeCSS().purge({
          content: [...scripts, { raw: '<html><head></head><body><div></div></body></html>', extension: 'html' }],
          css: [{ raw: String(file.source) }],
          variables: true,
          keyframes: true,
          safelist: {
            // Put together in scripts: `status-${tone}`; and what scripts read of the style sheet.
            greedy: [/^pf-v6-theme-dark$/, /^u-/, /^(status|bar|tile|step|hour)-/],
            standard: [':root', 'body', 'html'],
            variables: [/^--plot-/],
          },
          defaultExtractor: (text) => text.match(/[A-Za-z0-9_-]+/g) ?? [],
        });
        if (pruned) file.source = pruned.css;
      }
    },
  };
}
