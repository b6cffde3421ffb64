import {
  FormGroup,
  FormHelperText,
  FormSelect,
  FormSelectOption,
  HelperText,
  HelperTextItem,
  ExpandableSection,
  TextInput,
} from '@patternfly/react-core';
import { useId, useState } from 'react';

/** Fields that are seldom needed: out of sight until somebody asks for them. */
export function More({ label, isOpen = false, children }: { label: string; isOpen?: boolean; children: React.ReactNode }) {
  const [open, setOpen] = useState(isOpen);
  return (
    <ExpandableSection toggleText={label} isExpanded={open} onToggle={(_, is) => setOpen(is)} isIndented>
      {open && <div className="more-fields">{children}</div>}
    </ExpandableSection>
  );
}

/** A line to fill in, with a sentence of help below, or of what is wrong with it. */
export function TextField({
  label,
  value,
  onChange,
  help,
  wrong,
  required,
  type = 'text',
  placeholder,
  autoComplete = 'off',
}: {
  label: string;
  value: string;
  onChange: (value: string) => void;
  help?: string;
  wrong?: string | null;
  required?: boolean;
  type?: 'text' | 'password' | 'number';
  placeholder?: string;
  autoComplete?: string;
}) {
  const id = useId();
  return (
    <FormGroup label={label} fieldId={id} isRequired={required}>
      <TextInput
        id={id}
        type={type}
        value={value}
        isRequired={required}
        placeholder={placeholder}
        autoComplete={autoComplete}
        spellCheck={false}
        validated={wrong ? 'error' : 'default'}
        aria-describedby={`${id}-help`}
        onChange={(_, text) => onChange(text)}
      />
      {(wrong || help) && (
        <FormHelperText>
          <HelperText id={`${id}-help`}>
            <HelperTextItem variant={wrong ? 'error' : 'default'}>{wrong || help}</HelperTextItem>
          </HelperText>
        </FormHelperText>
      )}
    </FormGroup>
  );
}

export function SelectField({
  label,
  value,
  onChange,
  options,
  help,
}: {
  label: string;
  value: string;
  onChange: (value: string) => void;
  options: { value: string; label: string }[];
  help?: string;
}) {
  const id = useId();
  return (
    <FormGroup label={label} fieldId={id}>
      <FormSelect id={id} value={value} onChange={(_, chosen) => onChange(chosen)} aria-label={label}>
        {options.map((option) => (
          <FormSelectOption key={option.value} value={option.value} label={option.label} />
        ))}
      </FormSelect>
      {help && (
        <FormHelperText>
          <HelperText>
            <HelperTextItem>{help}</HelperTextItem>
          </HelperText>
        </FormHelperText>
      )}
    </FormGroup>
  );
}
