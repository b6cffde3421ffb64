/** What the daemon says, as a sentence that stands alone: a capital letter first, unless a name begins it, and a full stop. */
export function sentence(text: string): string {
  const first = text.split(/\s/, 1)[0] ?? '';
  const isName = /[/@:0-9-]/.test(first) || first === 'farside';
  const begun = isName ? text : text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?:]$/.test(begun) ? begun : `${begun}.`;
}
