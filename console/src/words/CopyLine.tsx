import { Button } from '@patternfly/react-core';
import { useState } from 'react';

/** A line for another program, with a button that copies it. */
export function CopyLine({ label, text }: { label: string; text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <div className="copy-line">
      <div className="copy-label">{label}</div>
      <div className="copy-row">
        <code tabIndex={0} aria-label={label}>
          {text}
        </code>
        <Button variant="secondary" size="sm" onClick={() => void copy()} aria-label={`Copy: ${label}`}>
          {copied ? 'Copied' : 'Copy'}
        </Button>
      </div>
    </div>
  );
}
