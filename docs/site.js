// A button on each block of code, which copies it without the signs of a prompt.
document.addEventListener("DOMContentLoaded", () => {
  if (!navigator.clipboard) return;
  for (const block of document.querySelectorAll("div.highlight")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.onclick = async () => {
      const lines = block.querySelector("pre").textContent.trimEnd().split("\n");
      const typed = lines.filter((each) => each.startsWith("$ "));
      await navigator.clipboard.writeText(typed.length ? typed.map((each) => each.slice(2)).join("\n") : lines.join("\n"));
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    };
    block.append(button);
  }
});
