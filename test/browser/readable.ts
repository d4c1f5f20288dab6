import type { Page } from 'playwright-core'

/** Whatever is seen and reaches beyond the screen's width, by what it is. */
export function outside(page: Page, within = 'body'): Promise<string[]> {
  return page.evaluate<string[]>(`(() => {
    const width = document.documentElement.clientWidth
    const wide = document.documentElement.scrollWidth > width ? ['the page scrolls sideways'] : []
    return wide.concat([...document.querySelectorAll('${within} *')]
      .filter((element) => element.checkVisibility() && !element.closest('.unseen, .head'))
      // What a box cuts off is not outside of the screen.
      .filter((element) => !element.closest('.cell, .brand, #holder, .who') || element.matches('.cell, #holder, .who'))
      .filter((element) => {
        const { left, right } = element.getBoundingClientRect()
        return right > width + 0.5 || left < -0.5
      })
      .map((element) => element.tagName + '#' + element.id + '.' + element.className))
  })()`)
}

/** The same at the width of a small phone, of a tablet and of a large screen. The page is left at the last of them. */
export async function outsideAtAnyWidth(page: Page): Promise<string[]> {
  const found: string[] = []
  for (const width of [320, 768, 1920]) {
    await page.setViewportSize({ width, height: 900 })
    found.push(...(await outside(page)).map((what) => `${width} px: ${what}`))
  }
  return found
}

/** Texts whose colour is too near to what is behind them. */
export function hardToRead(page: Page): Promise<string[]> {
  return page.evaluate<string[]>(`(() => {
    const context = document.createElement('canvas').getContext('2d', { willReadFrequently: true })
    // The canvas turns any way to write a colour into numbers.
    const rgba = (colour) => {
      context.clearRect(0, 0, 1, 1)
      context.fillStyle = colour
      context.fillRect(0, 0, 1, 1)
      return [...context.getImageData(0, 0, 1, 1).data]
    }
    const luminance = (rgb) => {
      const [r, g, b] = rgb.map((part) => {
        const share = part / 255
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
      })
      return 0.2126 * r + 0.7152 * g + 0.0722 * b
    }
    const behind = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const colour = rgba(getComputedStyle(at).backgroundColor)
        if (colour[3] === 255) return colour
      }
      return [255, 255, 255, 255]
    }
    return [...document.querySelectorAll('body *')]
      .filter((element) => element.checkVisibility({ visibilityProperty: true }) && !element.closest('.unseen'))
      .filter((element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== ''))
      .map((element) => {
        const [a, b] = [rgba(getComputedStyle(element).color), behind(element)]
          .map((colour) => luminance(colour.slice(0, 3)))
          .sort((x, y) => y - x)
        return { contrast: (a + 0.05) / (b + 0.05), what: element.tagName + '#' + element.id + ' ' + element.textContent.slice(0, 30) }
      })
      .filter(({ contrast }) => contrast < 4.5)
      .map(({ contrast, what }) => what + ' ' + contrast.toFixed(2))
  })()`)
}
