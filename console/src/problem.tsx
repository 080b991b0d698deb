export function Problem({ text }: { text: string | null }) {
  return (
    <div role="alert">
      {text && <p class="note bad">{text}</p>}
    </div>
  );
}
