const KEY = 'ringfence-theme'
const THEMES = ['auto', 'light', 'dark'] as const
type Theme = (typeof THEMES)[number]

/** As the system has it, until the button says otherwise. */
export function startTheme(button: HTMLButtonElement): void {
  let theme = stored()
  const apply = (): void => {
    document.documentElement.dataset['theme'] = theme
    button.setAttribute('aria-label', `Colours: ${theme}`)
    button.title = `Colours: ${theme === 'auto' ? 'as the system has them' : theme}`
  }
  button.addEventListener('click', () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]!
    store(theme)
    apply()
  })
  apply()
}

// Storage may be forbidden, in a frame or by a setting: then the choice lasts as long as the page.
function stored(): Theme {
  try {
    return THEMES.find((theme) => theme === localStorage.getItem(KEY)) ?? 'auto'
  } catch {
    return 'auto'
  }
}

function store(theme: Theme): void {
  try {
    localStorage.setItem(KEY, theme)
  } catch {
    // See above.
  }
}
