//! Evaluates string templates with interpolations and directives.

use hcl_edit::template::{Directive, Element, Strip, Template};

use crate::budget::{Result, failed};
use crate::eval::{Evaluator, Scope};
use crate::value::Value;

impl Evaluator<'_> {
    /// The value of a template. A single interpolation keeps the type of its expression.
    pub(crate) fn template(&self, template: &Template, scope: Scope<'_>) -> Result<Value> {
        if let Some(Element::Interpolation(only)) = template.as_single_element() {
            return self.evaluate(&only.expr, scope);
        }
        let mut out = String::new();
        self.render(template, scope, (false, false), &mut out)?;
        Ok(Value::text(out))
    }

    /// Appends the text of a template. `trim`: whether the strip markers (`~`) around it remove space at its ends.
    fn render(
        &self,
        template: &Template,
        scope: Scope<'_>,
        trim: (bool, bool),
        out: &mut String,
    ) -> Result<()> {
        let mut elements = template.iter().peekable();
        let mut trim_start = trim.0;
        while let Some(element) = elements.next() {
            self.budget.spend(16)?;
            match element {
                Element::Literal(text) => {
                    let mut text = text.value().as_str();
                    let trim_end = elements.peek().map_or(trim.1, |next| strips(next).0);
                    if trim_start {
                        text = text.trim_start();
                    }
                    if trim_end {
                        text = text.trim_end();
                    }
                    self.budget.spend(text.len())?;
                    out.push_str(text);
                }
                Element::Interpolation(interpolation) => {
                    let value = self.evaluate(&interpolation.expr, scope)?;
                    if value.is_null() {
                        return failed("a null value cannot be part of a text");
                    }
                    let text = value.to_text(&self.budget)?;
                    self.budget.spend(text.len())?;
                    out.push_str(&text);
                }
                Element::Directive(directive) => {
                    self.budget.deeper(|| self.directive(directive, scope, out))?;
                }
            }
            trim_start = strips(element).1;
        }
        Ok(())
    }

    fn directive(&self, directive: &Directive, scope: Scope<'_>, out: &mut String) -> Result<()> {
        match directive {
            Directive::If(directive) => {
                let start = &directive.if_expr;
                let end = directive.endif_expr.strip.strip_start();
                let condition = self.evaluate(&start.cond_expr, scope)?.to_bool()?;
                match (condition, &directive.else_expr) {
                    (true, other) => {
                        let end = other.as_ref().map_or(end, |other| other.strip.strip_start());
                        self.render(&start.template, scope, (start.strip.strip_end(), end), out)
                    }
                    (false, Some(other)) => {
                        self.render(&other.template, scope, (other.strip.strip_end(), end), out)
                    }
                    (false, None) => Ok(()),
                }
            }
            Directive::For(directive) => {
                let start = &directive.for_expr;
                let trim = (start.strip.strip_end(), directive.endfor_expr.strip.strip_start());
                let collection = self.evaluate(&start.collection_expr, scope)?;
                let key = start.key_var.as_ref().map(|name| name.as_str());
                self.each(&collection, key, start.value_var.as_str(), scope, &mut |scope| {
                    self.render(&start.template, scope, trim, out)
                })
            }
        }
    }
}

/// Whether an element removes the space before and after it.
fn strips(element: &Element) -> (bool, bool) {
    let both = |first: Strip, last: Strip| (first.strip_start(), last.strip_end());
    match element {
        Element::Literal(_) => (false, false),
        Element::Interpolation(interpolation) => both(interpolation.strip, interpolation.strip),
        Element::Directive(directive) => match &**directive {
            Directive::If(directive) => both(directive.if_expr.strip, directive.endif_expr.strip),
            Directive::For(directive) => both(directive.for_expr.strip, directive.endfor_expr.strip),
        },
    }
}
